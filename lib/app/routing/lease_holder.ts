import { collectionPath } from "../../api/kind.ts";
import { LEASE, type Lease } from "../../api/kinds/lease.ts";
import { ApiError } from "../../kube/api_error.ts";
import type { KubeClient } from "../../kube/client.ts";
import { microTime } from "../../kube/event.ts";
import { answeredInTime } from "../../kube/linked_abort.ts";
import { isOlderVersion } from "../../kube/resource_version.ts";
import { slimObject } from "../../kube/slim.ts";
import { StringTable } from "../../kube/string_table.ts";
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import type { Clock, Timer } from "../../os/clock.ts";

/** The requests that a Lease needs. */
export type LeaseClient = Pick<KubeClient, "get" | "create" | "patch">;

/** Selects the Leases that every kube-relay watches among those of a namespace. */
export const LEASE_LABEL = "kube-relay.io/lease";

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
  /** Annotations of the Lease, as of now; they are written with each renewal. @default {none} */
  readonly annotations?: () => Readonly<Record<string, string>>;
  /** Whether the Lease may be claimed now. @default {always} */
  readonly mayClaim?: () => boolean;
  /** Called when this process begins to hold the Lease, and when it no longer does. Must not throw. */
  readonly onHeld?: (isHeld: boolean) => void;
}

/** Renewals are three times as frequent as needed, so that two may fail. */
const RENEWALS = 3;
/** Parts of the duration after which a failed request is repeated, and after which it has failed. */
const [RETRY_PART, TIMEOUT_PART] = [6, 3];
/** Requests of a Lease that lasts longer are repeated as if it did not. */
const LONGEST_MS = 15_000;
/** A Lease that was edited by hand must not keep candidates out for longer. */
const LONGEST_WAIT_MS = 60_000;
/** The API has 32 bits for it. */
const MOST_TRANSITIONS = 2 ** 31 - 1;
/** Most attempts to give a Lease up: a renewal that was sent before may come between. */
const RELEASE_ATTEMPTS = 3;
/** Conflicts one after the other from which on they are a problem: candidates have one now and then. */
const MANY_CONFLICTS = 10;

/**
 * Claims a Lease at the API server and renews it. One request is in flight at most. At most one candidate
 * holds the Lease at a time: a holder counts from when it sent its renewal, the others from when they
 * saw it. The times that are written into the Lease are for people.
 */
export class LeaseHolder {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #options: LeaseHolderOptions;
  readonly #path: string;
  /** How long the Lease lasts from the next renewal on. */
  #durationMs: number;
  /** As it was last seen; `undefined` = it does not exist, or is unknown. */
  #seen: Lease | undefined;
  /** When its last renewal was seen. */
  #seenAt = 0;
  /** When the last successful renewal of this process was sent; `undefined` = it is not the holder. */
  #renewedAt: number | undefined;
  #releasedAt = -Infinity;
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

  constructor(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
    options: LeaseHolderOptions,
  ) {
    this.#clock = clock;
    this.#logger = logger.with({ component: "lease", lease: options.name });
    this.#options = options;
    this.#path = collectionPath(LEASE, options.namespace);
    this.#durationMs = options.durationSeconds * 1000;
  }

  /** The holder as it was last seen, also if the Lease has expired. */
  get holder(): string | undefined {
    return this.#seen?.spec.holderIdentity || undefined;
  }

  /** Why the last request failed; `undefined` if it did not. */
  get problem(): string | undefined {
    return this.#problem;
  }

  get isHeld(): boolean {
    return this.#renewedAt !== undefined && this.#clock.now() < this.#renewedAt + this.#durationMs;
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
    if (seconds * 1000 === this.#durationMs) return;
    this.#durationMs = seconds * 1000;
    this.reconsider();
  }

  /** `mayClaim` or `annotations` has another answer now. */
  reconsider(): void {
    this.#wake?.();
  }

  /** Takes the Lease as a watch has it, or that it was deleted. */
  observe(lease: Lease | undefined): void {
    const known = this.#seen?.metadata.resourceVersion;
    const version = lease?.metadata.resourceVersion;
    // The watch may be later than the answer to a request.
    if (known !== undefined && isOlderVersion(version, known) || lease && version === known) return;
    this.#observe(lease);
    this.#report();
    this.#wake?.();
  }

  /** Claims and renews until the signal is aborted. Never rejects. */
  async run(client: LeaseClient, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const now = this.#clock.now();
      const spec = this.#claim();
      const dueAt = this.#dueAt();
      if (!this.#isWanted) await this.#resign(client, signal);
      else if (this.#options.mayClaim?.() === false) await this.#sleep(this.#retryMs, signal);
      else if (now < dueAt) {
        this.#noteHolder();
        await this.#sleep(dueAt - this.#clock.now(), signal);
      } else if (!await this.#write(client, spec, now, signal)) {
        // The time that a request hung counts: a pause after it could let the Lease expire.
        await this.#sleep(now + this.#retryMs - this.#clock.now(), signal);
      }
      this.#report();
    }
    this.#expiry?.cancel();
  }

  /** Gives the Lease up, so that another candidate need not wait. Never rejects. */
  async release(client: LeaseClient, signal: AbortSignal): Promise<void> {
    const now = this.#clock.now();
    const spec = this.isHeld && this.#seen
      ? { ...this.#seen.spec, holderIdentity: "", renewTime: microTime(this.#clock.wallNow()) }
      : undefined;
    this.#renewedAt = undefined;
    this.#releasedAt = now;
    this.#report();
    for (let attempt = 1; spec && attempt <= RELEASE_ATTEMPTS; attempt++) {
      if (await this.#write(client, spec, now, signal) || signal.aborted) return;
      // The version was old. Only what this process still holds is given up.
      if (this.holder !== this.#options.holder) return;
    }
  }

  async #resign(client: LeaseClient, signal: AbortSignal): Promise<void> {
    if (this.isHeld) await this.release(client, signal);
    if (!this.#isWanted) await this.#sleep(LONGEST_MS, signal);
  }

  /** When the Lease has to be written, if this process is a candidate. */
  #dueAt(): number {
    const { holder } = this;
    if (!this.#seen || holder === undefined) return -Infinity;
    if (holder === this.#options.holder) {
      const isOutdated = this.isHeld && this.#stated !== this.#written;
      if (this.#renewedAt === undefined || isOutdated) return -Infinity;
      return this.#renewedAt + this.#durationMs / RENEWALS;
    }
    const statedMs = (this.#seen.spec.leaseDurationSeconds ?? 0) * 1000;
    return this.#seenAt + Math.min(Math.max(statedMs, this.#durationMs), LONGEST_WAIT_MS);
  }

  /** The Lease as this process claims or renews it. */
  #claim(): Lease["spec"] {
    const renewTime = microTime(this.#clock.wallNow());
    const { holder } = this.#options;
    const { holderIdentity, acquireTime = renewTime, leaseTransitions = 0 } = this.#seen?.spec ??
      { holderIdentity: holder };
    const isOwn = holderIdentity === holder;
    return {
      holderIdentity: holder,
      leaseDurationSeconds: this.#durationMs / 1000,
      acquireTime: isOwn ? acquireTime : renewTime,
      renewTime,
      leaseTransitions: isOwn ? leaseTransitions : Math.min(leaseTransitions + 1, MOST_TRANSITIONS),
    };
  }

  /**
   * Creates or replaces the Lease, the latter only in the version that was seen: another candidate may
   * have been faster. Returns whether it is now as wanted.
   */
  async #write(
    client: LeaseClient,
    spec: Lease["spec"],
    sentAt: number,
    signal: AbortSignal,
  ): Promise<boolean> {
    this.#failingSince ??= sentAt;
    const ms = Math.min(this.#durationMs, LONGEST_MS) / TIMEOUT_PART;
    const stated = this.#stated;
    const isNew = this.#seen === undefined;
    try {
      const answer = await answeredInTime(
        { clock: this.#clock, ms, signal },
        (limit) => this.#send(client, spec, limit),
      );
      this.#failingSince = undefined;
      this.#written = stated;
      this.#conflicts = 0;
      const lease = leaseOf(answer);
      const isOwn = lease?.spec.holderIdentity === this.#options.holder;
      // The answer to a renewal may be later than a release.
      if (!isOwn || sentAt > this.#releasedAt) {
        this.#seen = lease;
        this.#renewedAt = isOwn ? sentAt : undefined;
      }
      this.#expiry?.cancel();
      if (this.isHeld) {
        this.#expiry = this.#clock.setTimer(
          Math.max(0, sentAt + this.#durationMs - this.#clock.now()),
          () => this.#report(),
        );
      }
      this.#note(undefined);
      return true;
    } catch (error) {
      if (signal.aborted) return false;
      if (error instanceof ApiError && error.status === 409) {
        this.#failingSince = undefined;
        if (++this.#conflicts >= MANY_CONFLICTS) this.#note(error);
        await this.#read(client, signal);
      } else if (error instanceof ApiError && error.isNotFound() && !isNew) {
        this.#observe(undefined);
      } else this.#note(error);
      return false;
    }
  }

  #send(client: LeaseClient, spec: Lease["spec"], signal: AbortSignal): Promise<unknown> {
    const { name, namespace, label = LEASE_LABEL } = this.#options;
    const annotations = this.#options.annotations?.();
    const metadata = { labels: { [label]: "true" }, ...(annotations && { annotations }) };
    if (this.#seen) {
      const { resourceVersion = "" } = this.#seen.metadata;
      const patch = { metadata: { ...metadata, resourceVersion }, spec };
      return client.patch(`${this.#path}/${name}`, patch, signal);
    }
    const { group, versions, kind } = LEASE;
    return client.create(this.#path, {
      ...{ apiVersion: `${group}/${versions[0]}`, kind },
      metadata: { ...metadata, name, namespace },
      spec,
    }, signal);
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
    const { holderIdentity, renewTime } = lease?.spec ?? {};
    const known = this.#seen?.spec;
    if (known?.holderIdentity !== holderIdentity || known?.renewTime !== renewTime) {
      this.#seenAt = this.#clock.now();
    }
    this.#seen = lease;
    if (holderIdentity !== this.#options.holder) this.#renewedAt = undefined;
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
   * What others are to know at once: the annotations and the duration. A node that expects renewals as
   * often as before would take this one for dead.
   */
  get #stated(): string {
    return JSON.stringify([this.#options.annotations?.(), this.#durationMs]);
  }

  get #retryMs(): number {
    return Math.min(this.#durationMs, LONGEST_MS) / RETRY_PART;
  }
}

/** Reads a Lease as the API server sends it; `undefined` if it cannot be parsed. */
export function leaseOf(raw: unknown): Lease | undefined {
  return slimObject(LEASE, raw, { strings: new StringTable(), onProblem: () => {} });
}
