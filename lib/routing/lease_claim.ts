import type { Lease } from "../api/kinds/lease.ts";

/** A claim to a Lease. */
export interface LeaseClaimOptions {
  /** Unique among the candidates; the same after a restart. */
  readonly holder: string;
  readonly durationSeconds: number;
}

/** The next step of a candidate. */
export type LeaseStep =
  | { readonly action: "create"; readonly spec: Lease["spec"] }
  | {
    /** Only if the Lease still has this version: another candidate may have been faster. */
    readonly action: "replace";
    readonly resourceVersion: string;
    readonly spec: Lease["spec"];
  }
  | { readonly action: "wait"; readonly until: number };

/** A Lease, and when this candidate saw its last renewal. */
interface SeenLease {
  readonly lease: Lease;
  readonly seenAt: number;
}

/** Renewals are three times as frequent as needed, so that two may fail. */
const RENEWALS = 3;
/** A Lease that was edited by hand must not keep candidates out for longer. */
const LONGEST_MS = 60_000;
/** The API has 32 bits for it. */
const MOST_TRANSITIONS = 2 ** 31 - 1;

/**
 * One candidate for a Lease. Times are monotonic milliseconds of this candidate; the times that are
 * written into the Lease are for people. At most one candidate holds it at a time: a holder counts
 * from when it sent its renewal, the others from when they saw it.
 */
export class LeaseClaim {
  /** How long the Lease lasts from the next renewal on. */
  durationSeconds: number;
  readonly #options: LeaseClaimOptions;
  /** `null` = it does not exist; `undefined` = unknown. */
  #seen: SeenLease | null | undefined;
  /** When the last successful renewal was sent. */
  #renewedAt: number | undefined;
  #releasedAt = -Infinity;

  constructor(options: LeaseClaimOptions) {
    this.#options = options;
    this.durationSeconds = options.durationSeconds;
  }

  /** The holder as it was last seen, also if the Lease has expired. */
  get holder(): string | undefined {
    return this.#seen?.lease.spec.holderIdentity || undefined;
  }

  /** Takes the Lease as it was read, or that it does not exist. */
  observe(lease: Lease | undefined, { now }: { readonly now: number }): void {
    if (!lease) {
      this.#seen = null;
      this.#renewedAt = undefined;
      return;
    }
    const { holderIdentity, renewTime } = this.#seen?.lease.spec ?? {};
    const isRenewed = !this.#seen || holderIdentity !== lease.spec.holderIdentity ||
      renewTime !== lease.spec.renewTime;
    this.#seen = { lease, seenAt: isRenewed ? now : this.#seen!.seenAt };
    if (lease.spec.holderIdentity !== this.#options.holder) this.#renewedAt = undefined;
  }

  /** Takes the answer to a successful step. `sentAt` is when its request was sent. */
  written(lease: Lease, { sentAt }: { readonly sentAt: number }): void {
    // The step may have given it up.
    const isOwn = lease.spec.holderIdentity === this.#options.holder;
    // The answer to a renewal may be later than a release.
    if (isOwn && sentAt <= this.#releasedAt) return;
    this.#seen = { lease, seenAt: sentAt };
    this.#renewedAt = isOwn ? sentAt : undefined;
  }

  /** Whether this candidate holds the Lease. */
  isHeld(now: number): boolean {
    return this.#renewedAt !== undefined && now < this.#renewedAt + this.#durationMs;
  }

  /**
   * Returns the next step. `wallTime` is an RFC 3339 time with microseconds. `isDue`: whether the own
   * Lease is written in any case. @default {false}
   */
  next(
    { now, wallTime, isDue = false }: {
      readonly now: number;
      readonly wallTime: string;
      readonly isDue?: boolean;
    },
  ): LeaseStep {
    if (!this.#seen) return { action: "create", spec: this.#spec(wallTime, undefined) };
    const { lease, seenAt } = this.#seen;
    const { holderIdentity = "", leaseDurationSeconds = 0 } = lease.spec;
    const isOwn = holderIdentity === this.#options.holder;
    const due = holderIdentity === "" || isOwn && isDue
      ? now
      : isOwn
      ? (this.#renewedAt ?? -Infinity) + this.#durationMs / RENEWALS
      : seenAt + Math.min(Math.max(leaseDurationSeconds * 1000, this.#durationMs), LONGEST_MS);
    if (now < due) return { action: "wait", until: due };
    const resourceVersion = lease.metadata.resourceVersion ?? "";
    return { action: "replace", resourceVersion, spec: this.#spec(wallTime, lease) };
  }

  /** Gives the Lease up. `undefined` if this candidate does not hold it. */
  release(
    { now, wallTime }: { readonly now: number; readonly wallTime: string },
  ): Exclude<LeaseStep, { readonly action: "wait" }> | undefined {
    const isHeld = this.isHeld(now);
    this.#renewedAt = undefined;
    this.#releasedAt = now;
    if (!isHeld || !this.#seen) return undefined;
    const { lease } = this.#seen;
    return {
      action: "replace",
      resourceVersion: lease.metadata.resourceVersion ?? "",
      spec: { ...lease.spec, holderIdentity: "", renewTime: wallTime },
    };
  }

  get #durationMs(): number {
    return this.durationSeconds * 1000;
  }

  #spec(renewTime: string, before: Lease | undefined): Lease["spec"] {
    const { durationSeconds } = this;
    const { holder } = this.#options;
    const { holderIdentity, acquireTime = renewTime, leaseTransitions = 0 } = before?.spec ?? {};
    const isOwn = holderIdentity === holder;
    return {
      holderIdentity: holder,
      leaseDurationSeconds: durationSeconds,
      acquireTime: isOwn ? acquireTime : renewTime,
      renewTime,
      leaseTransitions: isOwn || !before
        ? leaseTransitions
        : Math.min(leaseTransitions + 1, MOST_TRANSITIONS),
    };
  }
}
