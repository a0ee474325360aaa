import { collectionPath } from "../../api/kind.ts";
import { ROUTED_SERVICE, type RoutedService } from "../../api/kinds/routed_service.ts";
import { ApiError } from "../../kube/api_error.ts";
import { Backoff } from "../../os/backoff.ts";
import type { KubeClient } from "../../kube/client.ts";
import type { Informer } from "../../kube/informer.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { type IpAddress, tryParseIpAddress } from "../../net/ip_address.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import { namespacedNameOf, type ServiceKey } from "../../proxy/service_port_name.ts";
import type { AddressAssignment } from "../../routing/address_allocator.ts";

/** The requests of a writer. */
export type StatusClient = Pick<KubeClient, "patch">;

/** The result of a write. `conflict`: the Service had changed, or is gone. */
export type WriteOutcome = "written" | "conflict" | "failed";

/** The dependencies of {@linkcode StatusWriter}. */
interface StatusWriterDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly random: () => number;
}

interface StatusWriterOptions {
  readonly client: StatusClient;
  /** Ends all writes. */
  readonly signal: AbortSignal;
  readonly services: Pick<Informer<RoutedService>, "get">;
  /** What the status has to have; `undefined` = it is left alone. */
  readonly assignment: (key: ServiceKey) => AddressAssignment | undefined;
  readonly onWritten?: ((outcome: WriteOutcome) => void) | undefined;
}

/** Writes in flight at the same time. */
const PARALLEL = 4;
/** Waits after a write that failed. */
const RETRY = { initialMs: 1_000, maxMs: 60_000, resetAfterMs: 120_000 };
/** Writes of one Service without a wait: after more, another program is changing it again and again. */
const FREE_WRITES = 5;
/** Longest time between two writes that belong together: the longest wait, with its jitter. */
const CALM_MS = 2 * RETRY.maxMs + RETRY.resetAfterMs;
/** Answers that are about the API server, not about one Service. */
const SERVER_TROUBLE: ReadonlySet<number> = new Set([401, 408, 429, 503, 504]);

/** How often a Service was written of late. */
interface Pace {
  readonly backoff: Backoff;
  writes: number;
  lastAt: number;
}

/**
 * Writes the addresses of Services into their status. A write applies only to the version of the Service
 * that it was decided by; the event of a newer version decides again.
 */
export class StatusWriter {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #options: StatusWriterOptions;
  readonly #backoff: Backoff;
  readonly #waiting = new Set<ServiceKey>();
  readonly #writing = new Map<ServiceKey, Promise<void>>();
  /** The version that was written last, until its successor is seen. */
  readonly #tried = new Map<ServiceKey, string | undefined>();
  /** The one that was written last comes last. */
  readonly #paces = new Map<ServiceKey, Pace>();
  /** Services that are not written for a while. */
  readonly #resting = new Map<ServiceKey, Timer>();
  readonly #random: () => number;
  #warnedAt = -Infinity;
  /** Why the last write of each Service failed. */
  readonly #failed = new Map<ServiceKey, string>();

  constructor({ clock, logger, random }: StatusWriterDependencies, options: StatusWriterOptions) {
    this.#clock = clock;
    this.#logger = logger.with({ component: "status_writer" });
    this.#options = options;
    this.#random = random;
    this.#backoff = new Backoff(random, RETRY);
  }

  /** Why writes fail; `undefined` if none does. */
  get problem(): string | undefined {
    const [problem] = this.#failed.values();
    return problem;
  }

  /** Compares the status of a Service with what it has to have, and writes the difference. */
  add(key: ServiceKey): void {
    if (this.#resting.has(key)) return;
    if (this.#difference(key) === undefined) {
      // It may be gone, or right by now.
      if (!this.#writing.has(key)) this.#note(key, undefined);
      return;
    }
    this.#waiting.add(key);
    this.#startWrites();
  }

  /** Resolves when no write is in flight, after the signal was aborted. */
  async ended(): Promise<void> {
    for (const timer of this.#resting.values()) timer.cancel();
    await Promise.all(this.#writing.values());
  }

  #startWrites(): void {
    for (const key of this.#waiting) {
      if (this.#options.signal.aborted || this.#writing.size >= PARALLEL) return;
      if (this.#writing.has(key)) continue;
      this.#waiting.delete(key);
      // The end of the rest compares it again.
      if (this.#resting.has(key)) continue;
      const writing = this.#write(key).finally(() => {
        this.#writing.delete(key);
        this.#startWrites();
      });
      this.#writing.set(key, writing);
    }
  }

  /** Returns the Service and its new addresses; `undefined` if there is nothing to write. */
  #difference(
    key: ServiceKey,
  ): { readonly service: RoutedService; readonly addresses: readonly IpAddress[] } | undefined {
    const service = this.#options.services.get(key);
    const assignment = service && this.#options.assignment(key);
    if (!assignment) {
      this.#tried.delete(key);
      return undefined;
    }
    const { resourceVersion } = service.metadata;
    if (this.#tried.has(key) && this.#tried.get(key) === resourceVersion) return undefined;
    this.#tried.delete(key);
    const { addresses } = assignment;
    const ingress = service.status?.loadBalancer?.ingress ?? [];
    const current = new Set(ingress.map(({ ip }) => tryParseIpAddress(ip ?? "")));
    // The order of addresses is no reason to write.
    const isRight = current.size === addresses?.length &&
      addresses.every((address) => current.has(address));
    return addresses && !isRight ? { service, addresses } : undefined;
  }

  /** Never rejects. */
  async #write(key: ServiceKey): Promise<void> {
    const found = this.#difference(key);
    if (!found) return;
    const { client, signal, onWritten } = this.#options;
    const { service, addresses } = found;
    const { namespace, name } = namespacedNameOf(service);
    const { resourceVersion } = service.metadata;
    this.#tried.set(key, resourceVersion);
    const path = `${collectionPath(ROUTED_SERVICE, namespace)}/${name}/status`;
    try {
      // The API server refuses the patch if the Service has changed since.
      const metadata = resourceVersion === undefined ? {} : { resourceVersion };
      const status = { loadBalancer: { ingress: addresses.map((ip) => ({ ip })) } };
      await client.patch(path, { metadata, status }, signal);
      this.#logger.verbose(1, "Wrote the addresses of a Service", { service: key, addresses });
      this.#note(key, undefined);
      onWritten?.("written");
      this.#limitWrites(key);
    } catch (error) {
      if (signal.aborted) return;
      const isOld = error instanceof ApiError && (error.status === 409 || error.isNotFound());
      onWritten?.(isOld ? "conflict" : "failed");
      // After a conflict, the event of the newer version has the Service assigned again.
      if (isOld) return;
      this.#note(key, error);
      this.#tried.delete(key);
      // Others can be written: a webhook or a rule of the API is against this one.
      if (error instanceof ApiError && !SERVER_TROUBLE.has(error.status)) this.#rest(key);
      else await this.#wait(key);
    }
  }

  /** Another controller that writes the status too, or a tenant, must not cause an endless loop. */
  #limitWrites(key: ServiceKey): void {
    const pace = this.#paceOf(key);
    if (++pace.writes <= FREE_WRITES) return;
    this.#rest(key);
    const now = this.#clock.now();
    if (now - this.#warnedAt < CALM_MS) return;
    this.#warnedAt = now;
    this.#logger.warn(
      "The addresses in the status of a Service change again and again; they are written less often. " +
        "Check whether another load balancer controller writes them too",
      { service: key },
    );
  }

  /** Writes a Service later, and others meanwhile. */
  #rest(key: ServiceKey): void {
    // The answer to a write may come after the end.
    if (this.#options.signal.aborted) return;
    const timer = this.#clock.setTimer(this.#paceOf(key).backoff.next(this.#clock.now()), () => {
      this.#resting.delete(key);
      this.add(key);
    });
    this.#resting.set(key, timer);
  }

  #paceOf(key: ServiceKey): Pace {
    const now = this.#clock.now();
    for (const [old, { lastAt }] of this.#paces) {
      if (now - lastAt < CALM_MS) break;
      this.#paces.delete(old);
    }
    const pace = this.#paces.get(key) ??
      { backoff: new Backoff(this.#random, RETRY), writes: 0, lastAt: now };
    pace.lastAt = now;
    this.#paces.delete(key);
    this.#paces.set(key, pace);
    return pace;
  }

  /** Keeps its place among the writes, so that a server in trouble is not asked more often. */
  async #wait(key: ServiceKey): Promise<void> {
    const { signal } = this.#options;
    await this.#clock.sleep(this.#backoff.next(this.#clock.now()), signal).catch(() => {});
    this.#waiting.add(key);
  }

  #note(key: ServiceKey, error: unknown): void {
    const before = this.#failed.size;
    if (error === undefined) this.#failed.delete(key);
    else this.#failed.set(key, messageOf(error));
    const isNews = (before === 0) !== (this.#failed.size === 0);
    if (!isNews) return;
    if (error === undefined) this.#logger.info("The status of Services can be written again");
    else {
      this.#logger.warn("Cannot write the status of a Service; trying again", {
        ...{ service: key, error },
      });
    }
  }
}
