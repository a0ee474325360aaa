import { collectionPath } from "../../api/kind.ts";
import { LEASE, type Lease } from "../../api/kinds/lease.ts";
import { ApiError } from "../../kube/api_error.ts";
import type { KubeClient } from "../../kube/client.ts";
import { microTime } from "../../kube/event_object.ts";
import { answeredInTime } from "../../kube/linked_abort.ts";
import { isOlderVersion } from "../../kube/resource_version.ts";
import { slimObject } from "../../kube/slim.ts";
import { StringTable } from "../../kube/string_table.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import { LeaseClaim, type LeaseStep } from "../../routing/lease_claim.ts";

/** The requests that a Lease needs. */
export type LeaseClient = Pick<KubeClient, "get" | "create" | "patch">;

/** Selects the Leases that every kube-relay watches among those of a namespace. */
export const LEASE_LABEL = "kube-relay.io/lease";
/** Marks the Leases of which a kube-relay watches only a few. */
export const HEARTBEAT_LABEL = "kube-relay.io/heartbeat";

/** The dependencies of {@linkcode LeaseHolder}. */
interface LeaseHolderDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
}

interface LeaseHolderOptions {
  readonly namespace: string;
  readonly name: string;
  /** Unique among the candidates; the same after a restart. */
  readonly holder: string;
  readonly durationSeconds: number;
  /** Whether there is no other candidate, so that another holder is a mistake. @default {false} */
  readonly isOwn?: boolean;
  /** @default {LEASE_LABEL} */
  readonly label?: string;
  /**
   * Annotations of the Lease, as of now; they are written with each renewal, whose time they may have.
   *
   * @default {none}
   */
  readonly annotations?: (renewTime: string) => Readonly<Record<string, string>>;
  /** Whether the Lease may be claimed now. @default {always} */
  readonly mayClaim?: () => boolean;
  /** Called when this process begins to hold the Lease, and when it no longer does. Must not throw. */
  readonly onHeld?: (isHeld: boolean) => void;
}

type LeaseRequest = Exclude<LeaseStep, { readonly action: "wait" }> & { readonly sentAt: number };

/** Parts of the duration after which a failed request is repeated, and after which it has failed. */
const [RETRY_PART, TIMEOUT_PART] = [6, 3];
/** Requests of a Lease that lasts longer are repeated as if it did not. */
const LONGEST_MS = 15_000;
/** Most attempts to give a Lease up: a renewal that was sent before may come between. */
const RELEASE_ATTEMPTS = 3;
/** Conflicts one after the other from which on they are a problem: candidates have one now and then. */
const MANY_CONFLICTS = 10;

/** Claims a Lease at the API server and renews it. One request is in flight at most. */
export class LeaseHolder {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #options: LeaseHolderOptions;
  readonly #claim: LeaseClaim;
  readonly #path: string;
  #version: string | undefined;
  /** What the last successful write stated, as {@linkcode #stated}. */
  #written: string | undefined;
  #wasHeld = false;
  #conflicts = 0;
  #problem: string | undefined;
  #isWanted = true;
  /** When the first request was sent of those that failed or wait; `undefined` = the last one did not. */
  #failingSince: number | undefined;
  #wake: (() => void) | undefined;
  /** Fires when the Lease expires, whatever a request waits for. */
  #expiry: Timer | undefined;

  constructor({ clock, logger }: LeaseHolderDependencies, options: LeaseHolderOptions) {
    this.#clock = clock;
    this.#logger = logger.with({ component: "lease", lease: options.name });
    this.#options = options;
    this.#claim = new LeaseClaim(options);
    this.#path = collectionPath(LEASE, options.namespace);
  }

  get name(): string {
    return this.#options.name;
  }

  /** The holder as it was last seen, also if the Lease has expired. */
  get holder(): string | undefined {
    return this.#claim.holder;
  }

  /** Why the last request failed; `undefined` if it did not. */
  get problem(): string | undefined {
    return this.#problem;
  }

  get isHeld(): boolean {
    return this.#claim.isHeld(this.#clock.now());
  }

  /** For how long no request has succeeded, in milliseconds. */
  get failingMs(): number {
    return this.#failingSince === undefined ? 0 : this.#clock.now() - this.#failingSince;
  }

  /** Whether this process is a candidate. If not, the Lease is given up. */
  get isWanted(): boolean {
    return this.#isWanted;
  }

  set isWanted(isWanted: boolean) {
    if (isWanted === this.#isWanted) return;
    this.#isWanted = isWanted;
    this.reconsider();
  }

  /** Renews more or less often from now on. */
  setDuration(seconds: number): void {
    if (seconds === this.#claim.durationSeconds) return;
    this.#claim.durationSeconds = seconds;
    this.#wake?.();
  }

  /** `mayClaim` or `annotations` has another answer now. */
  reconsider(): void {
    this.#wake?.();
  }

  /** Takes the Lease as a watch has it, or that it was deleted. */
  observe(lease: Lease | undefined): void {
    // The watch may be later than the answer to a request.
    const version = lease?.metadata.resourceVersion;
    if (this.#version !== undefined && isOlderVersion(version, this.#version)) return;
    if (lease && version === this.#version) return;
    this.#observe(lease);
    this.#report();
    this.#wake?.();
  }

  /** Claims and renews until the signal is aborted. Never rejects. */
  async run(client: LeaseClient, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const moment = this.#now();
      const isDue = this.isHeld && this.#stated !== this.#written;
      const step = this.#claim.next({ ...moment, isDue });
      if (!this.#isWanted) await this.#resign(client, signal);
      else if (this.#options.mayClaim?.() === false) await this.#sleep(this.#retryMs, signal);
      else if (step.action === "wait") {
        this.#noteHolder();
        await this.#sleep(step.until - this.#clock.now(), signal);
      } else if (!await this.#try(client, { ...step, sentAt: moment.now }, signal)) {
        // The time that a request hung counts: a pause after it could let the Lease expire.
        await this.#sleep(moment.now + this.#retryMs - this.#clock.now(), signal);
      }
      this.#report();
    }
    this.#expiry?.cancel();
  }

  /** Gives the Lease up, so that another candidate need not wait. Never rejects. */
  async release(client: LeaseClient, signal: AbortSignal): Promise<void> {
    const moment = this.#now();
    let step = this.#claim.release(moment);
    this.#report();
    for (let attempt = 1; step && attempt <= RELEASE_ATTEMPTS; attempt++) {
      if (await this.#try(client, { ...step, sentAt: moment.now }, signal) || signal.aborted) {
        return;
      }
      // The version was old. Only what this process still holds is given up.
      if (this.#claim.holder !== this.#options.holder || this.#version === undefined) return;
      const { spec } = step;
      step = { action: "replace", spec, resourceVersion: this.#version };
    }
  }

  async #resign(client: LeaseClient, signal: AbortSignal): Promise<void> {
    if (this.isHeld) await this.release(client, signal);
    if (!this.#isWanted) await this.#sleep(LONGEST_MS, signal);
  }

  /** Returns whether the Lease is now as the step wanted it. */
  async #try(client: LeaseClient, request: LeaseRequest, signal: AbortSignal): Promise<boolean> {
    const { sentAt } = request;
    this.#failingSince ??= sentAt;
    const ms = Math.min(this.#durationMs, LONGEST_MS) / TIMEOUT_PART;
    const stated = this.#stated;
    try {
      const answer = await answeredInTime(
        { clock: this.#clock, ms, signal },
        (limit) => this.#send(client, request, limit),
      );
      this.#failingSince = undefined;
      const lease = leaseOf(answer);
      this.#version = lease?.metadata.resourceVersion;
      this.#written = stated;
      if (lease) this.#claim.written(lease, { sentAt });
      this.#expiry?.cancel();
      if (this.isHeld) {
        this.#expiry = this.#clock.setTimer(
          Math.max(0, sentAt + this.#durationMs - this.#clock.now()),
          () => this.#report(),
        );
      }
      this.#conflicts = 0;
      this.#note(undefined);
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      if (error instanceof ApiError && error.status === 409) {
        this.#failingSince = undefined;
        if (++this.#conflicts >= MANY_CONFLICTS) this.#note(error);
        await this.#read(client, signal);
        return false;
      }
      if (error instanceof ApiError && error.isNotFound() && request.action === "replace") {
        this.#observe(undefined);
      } else this.#note(error);
      return false;
    }
  }

  #send(
    client: LeaseClient,
    step: LeaseRequest,
    signal: AbortSignal,
  ): Promise<unknown> {
    const { name, namespace } = this.#options;
    const { spec } = step;
    const labels = { [this.#options.label ?? LEASE_LABEL]: "true" };
    const annotations = this.#options.annotations?.(spec.renewTime ?? "");
    if (step.action === "create") {
      const metadata = { name, namespace, labels, ...(annotations && { annotations }) };
      const { apiVersion, kind } = { apiVersion: `${LEASE.group}/${LEASE.versions[0]}`, ...LEASE };
      return client.create(this.#path, { apiVersion, kind, metadata, spec }, signal);
    }
    const metadata = {
      ...{ resourceVersion: step.resourceVersion, labels },
      ...(annotations && { annotations }),
    };
    return client.patch(`${this.#path}/${name}`, { metadata, spec }, signal);
  }

  async #read(client: LeaseClient, signal: AbortSignal): Promise<void> {
    try {
      this.#observe(leaseOf(await client.get(`${this.#path}/${this.#options.name}`, signal)));
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.isNotFound()) this.#observe(undefined);
      else this.#note(error);
    }
  }

  #observe(lease: Lease | undefined): void {
    this.#version = lease?.metadata.resourceVersion;
    this.#claim.observe(lease, { now: this.#clock.now() });
  }

  #report(): void {
    const { isHeld } = this;
    if (isHeld === this.#wasHeld) return;
    this.#wasHeld = isHeld;
    this.#options.onHeld?.(isHeld);
  }

  #noteHolder(): void {
    const { holder: own, isOwn } = this.#options;
    if (!isOwn || (this.holder ?? own) === own) return;
    const hint = `is another node named '${own}', or was the Lease edited?`;
    this.#note(new Error(`'${this.holder}' holds it: ${hint}`));
  }

  #note(error: unknown): void {
    const problem = error === undefined ? undefined : messageOf(error);
    const isNews = (problem === undefined) !== (this.#problem === undefined);
    this.#problem = problem;
    if (!isNews) return;
    if (error === undefined) this.#logger.info("Lease can be written again");
    else this.#logger.warn("Cannot write a Lease; trying again", { error });
  }

  /** Wakes when the Lease is observed. */
  async #sleep(ms: number, signal: AbortSignal): Promise<void> {
    const woken = Promise.withResolvers<void>();
    const wake = this.#wake = () => woken.resolve();
    const timer = this.#clock.setTimer(Math.max(0, Math.min(ms, this.#durationMs)), wake);
    signal.addEventListener("abort", wake, { once: true });
    if (signal.aborted) wake();
    await woken.promise;
    signal.removeEventListener("abort", wake);
    timer.cancel();
    this.#wake = undefined;
  }

  /**
   * What others are to know at once: the annotations, without a time, and the duration. Who expects
   * renewals as often as before would take this node for dead.
   */
  get #stated(): string {
    return JSON.stringify([this.#options.annotations?.(""), this.#claim.durationSeconds]);
  }

  get #durationMs(): number {
    return this.#claim.durationSeconds * 1000;
  }

  get #retryMs(): number {
    return Math.min(this.#durationMs, LONGEST_MS) / RETRY_PART;
  }

  #now() {
    return { now: this.#clock.now(), wallTime: microTime(this.#clock.wallNow()) };
  }
}

/** Reads a Lease as the API server sends it; `undefined` if it cannot be parsed. */
export function leaseOf(raw: unknown): Lease | undefined {
  return slimObject(LEASE, raw, { strings: new StringTable(), onProblem: () => {} });
}
