/**
 * Whether the proxy keeps up: bookkeeping of when syncs were asked for and when they succeeded.
 *
 * @module
 */
import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import type { Clock } from "../os/clock.ts";

/** Health of one IP family. */
interface FamilyHealth {
  /** Milliseconds since 1970 of the last good sync, or of the start of the sync loop. */
  readonly lastUpdated: number;
  readonly healthy: boolean;
}

/** What the Node object says about this node as a target of load balancers. */
export interface NodeEligibility {
  readonly deletionTimestamp?: string;
  readonly taints?: readonly { readonly key: string }[];
}

/** The cluster autoscaler sets it on a node that it is about to delete (KEP-3836). */
const TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler";

interface FamilyTimes {
  /** Time of day, for people. */
  readonly lastUpdated: number;
  /** On the clock that only grows: a jump of the time of day makes nothing late. */
  oldestPending: number | undefined;
}

/**
 * A family is unhealthy when a sync was asked for and has not succeeded within the time-out. One that
 * has nothing to do stays healthy for ever; one never heard of does not count.
 */
export class ProxyHealth {
  readonly #clock: Pick<Clock, "now" | "wallNow">;
  readonly #timeoutMs: number;
  readonly #families = new Map<IpFamily, FamilyTimes>();
  #nodeEligible = false;

  /** `timeoutMs` is twice the sync period, as upstream has it. */
  constructor(
    { clock }: { readonly clock: Pick<Clock, "now" | "wallNow"> },
    { timeoutMs }: { readonly timeoutMs: number },
  ) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  /** The family's sync loop begins. */
  syncLoopStarted(family: IpFamily): void {
    this.#families.set(family, { lastUpdated: this.#clock.wallNow(), oldestPending: undefined });
  }

  /** A sync was asked for. */
  syncQueued(family: IpFamily): void {
    const now = this.#clock.now();
    const times = this.#families.get(family);
    if (times) times.oldestPending ??= now;
    else this.#families.set(family, { lastUpdated: 0, oldestPending: now });
  }

  /** A sync succeeded. */
  synced(family: IpFamily): void {
    this.#families.set(family, { lastUpdated: this.#clock.wallNow(), oldestPending: undefined });
  }

  /** Takes the state of the own Node; the last one stays when the object is deleted. */
  nodeSeen({ deletionTimestamp, taints = [] }: NodeEligibility): void {
    this.#nodeEligible = deletionTimestamp === undefined &&
      !taints.some(({ key }) => key === TO_BE_DELETED_TAINT);
  }

  /** Whether load balancers may send to this node; false until the Node has been seen. */
  get nodeEligible(): boolean {
    return this.#nodeEligible;
  }

  /** Every family that has been heard of. */
  families(): ReadonlyMap<IpFamily, FamilyHealth> {
    const now = this.#clock.now();
    const result = new Map<IpFamily, FamilyHealth>();
    for (const family of IP_FAMILIES) {
      const times = this.#families.get(family);
      if (!times) continue;
      const { lastUpdated, oldestPending } = times;
      const healthy = oldestPending === undefined || now - oldestPending < this.#timeoutMs;
      result.set(family, { lastUpdated, healthy });
    }
    return result;
  }

  /** Whether every family that has been heard of is healthy. */
  healthy(): boolean {
    return [...this.families().values()].every(({ healthy }) => healthy);
  }
}
