import { collectionPath } from "../../api/kind.ts";
import { ROUTED_SERVICE, type RoutedService } from "../../api/kinds/routed_service.ts";
import { ApiError } from "../../kube/api_error.ts";
import { Backoff } from "../../kube/backoff.ts";
import type { KubeClient } from "../../kube/client.ts";
import type { Informer } from "../../kube/informer.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import { namespacedNameOf, type ServiceKey } from "../../proxy/service_port_name.ts";
import { addressRequestOf } from "../../routing/address_request.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";

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
  readonly settings: Pick<RoutingSettings, "loadBalancerClass" | "defaultLoadBalancerClass">;
  readonly services: Pick<Informer<RoutedService>, "get">;
  /** The addresses that the status has to have; `undefined` = it is left alone. */
  readonly wanted: (key: ServiceKey) => readonly IpAddress[] | undefined;
  readonly onWritten?: ((outcome: WriteOutcome) => void) | undefined;
}

/** Writes in flight at the same time. */
const PARALLEL = 4;
/** Waits after a write that failed. */
const RETRY = { initialMs: 1_000, maxMs: 60_000, resetAfterMs: 120_000 };

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
  #problem: string | undefined;

  constructor({ clock, logger, random }: StatusWriterDependencies, options: StatusWriterOptions) {
    this.#clock = clock;
    this.#logger = logger.with({ component: "status_writer" });
    this.#options = options;
    this.#backoff = new Backoff(random, RETRY);
  }

  /** Why the last write failed; `undefined` if it did not. */
  get problem(): string | undefined {
    return this.#problem;
  }

  /** Compares the status of a Service with what it has to have, and writes the difference. */
  add(key: ServiceKey): void {
    if (this.#difference(key) === undefined) return;
    this.#waiting.add(key);
    this.#startWrites();
  }

  /** Resolves when no write is in flight, after the signal was aborted. */
  async ended(): Promise<void> {
    await Promise.all(this.#writing.values());
  }

  #startWrites(): void {
    for (const key of this.#waiting) {
      if (this.#options.signal.aborted || this.#writing.size >= PARALLEL) return;
      if (this.#writing.has(key)) continue;
      this.#waiting.delete(key);
      const writing = this.#write(key).finally(() => {
        this.#writing.delete(key);
        this.#startWrites();
      });
      this.#writing.set(key, writing);
    }
  }

  /** Returns the Service and the addresses to write; `undefined` if there is nothing to write. */
  #difference(key: ServiceKey) {
    const service = this.#options.services.get(key);
    const wanted = service && this.#options.wanted(key);
    if (!wanted) {
      this.#tried.delete(key);
      return undefined;
    }
    const { resourceVersion } = service.metadata;
    if (this.#tried.has(key) && this.#tried.get(key) === resourceVersion) return undefined;
    this.#tried.delete(key);
    const current = addressRequestOf(service, this.#options.settings)?.current ?? [];
    const isSame = `${current.toSorted()}` === `${wanted.toSorted()}`;
    return isSame ? undefined : { service, wanted };
  }

  /** Never rejects. */
  async #write(key: ServiceKey): Promise<void> {
    const found = this.#difference(key);
    if (!found) return;
    const { client, signal, onWritten } = this.#options;
    const { service, wanted } = found;
    const { namespace, name } = namespacedNameOf(service);
    const { resourceVersion } = service.metadata;
    this.#tried.set(key, resourceVersion);
    const ingress = wanted.length === 0 ? null : wanted.map((ip) => ({ ip }));
    const path = `${collectionPath(ROUTED_SERVICE, namespace)}/${name}/status`;
    try {
      const patch = { metadata: { resourceVersion }, status: { loadBalancer: { ingress } } };
      await client.patch(path, patch, signal);
      this.#logger.verbose(1, "Wrote the addresses of a Service", {
        service: key,
        addresses: wanted,
      });
      this.#note(undefined);
      onWritten?.("written");
    } catch (error) {
      if (signal.aborted) return;
      const isOld = error instanceof ApiError && (error.status === 409 || error.isNotFound());
      onWritten?.(isOld ? "conflict" : "failed");
      // After a conflict, the event of the newer version has the Service assigned again.
      if (!isOld) await this.#wait(key, error);
    }
  }

  /** Keeps its place among the writes, so that a server in trouble is not asked more often. */
  async #wait(key: ServiceKey, error: unknown): Promise<void> {
    this.#note(error);
    this.#tried.delete(key);
    const { signal } = this.#options;
    await this.#clock.sleep(this.#backoff.next(this.#clock.now()), signal).catch(() => {});
    this.#waiting.add(key);
  }

  #note(error: unknown): void {
    const problem = error === undefined ? undefined : messageOf(error);
    const isNews = (problem === undefined) !== (this.#problem === undefined);
    this.#problem = problem;
    if (!isNews) return;
    if (error === undefined) this.#logger.info("The status of Services can be written again");
    else this.#logger.warn("Cannot write the status of a Service; trying again", { error });
  }
}
