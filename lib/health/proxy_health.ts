import { IP_FAMILIES, type IpFamily } from "../net/ip_address.ts";
import type { Clock } from "../os/clock.ts";

/** Health of one IP family. */
interface FamilyHealth {
  /** Milliseconds since 1970 of the last successful sync, or of the start of the sync loop. */
  readonly lastUpdated: number;
  readonly healthy: boolean;
}

/** The fields of the Node that decide whether load balancers may use it. */
export interface NodeEligibility {
  readonly deletionTimestamp?: string;
  readonly taints?: readonly { readonly key: string }[];
}

/** The cluster autoscaler adds this taint to a node before it deletes the node (KEP-3836). */
const TO_BE_DELETED_TAINT = "ToBeDeletedByClusterAutoscaler";

interface FamilyTimes {
  /** Time of day, for people. */
  readonly lastUpdated: number;
  /** On the monotonic clock: a jump of the time of day delays nothing. */
  oldestPending: number | undefined;
}

/**
 * Tracks requested and successful syncs. A family is unhealthy if a requested sync has not
 * succeeded within the timeout. A family without work stays healthy; an unknown family does not
 * count.
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

  /** The family's sync loop started. */
  syncLoopStarted(family: IpFamily): void {
    this.#families.set(family, { lastUpdated: this.#clock.wallNow(), oldestPending: undefined });
  }

  /** A sync was requested. */
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

  /** Updates the state of the own Node; deletion of the object keeps the last state. */
  nodeSeen({ deletionTimestamp, taints = [] }: NodeEligibility): void {
    this.#nodeEligible = deletionTimestamp === undefined &&
      !taints.some(({ key }) => key === TO_BE_DELETED_TAINT);
  }

  /** Whether load balancers may use this node; false until the Node has been seen. */
  get nodeEligible(): boolean {
    return this.#nodeEligible;
  }

  /** Returns every known family. */
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

  /** Whether every known family is healthy. */
  healthy(): boolean {
    return [...this.families().values()].every(({ healthy }) => healthy);
  }
}
