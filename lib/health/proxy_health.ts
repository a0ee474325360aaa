/**
 * Whether the proxy keeps up: bookkeeping of when syncs were asked for and when they succeeded.
 *
 * @module
 */
import { CONTROLLER_NAMES, type LoopId, loopText } from "../controller/loop_id.ts";
import { IP_FAMILIES } from "../net/ip_address.ts";
import type { Clock } from "../os/clock.ts";

/** Health of one loop. */
interface LoopHealth {
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

interface LoopTimes {
  /** Time of day, for people. */
  readonly lastUpdated: number;
  /** On the clock that only grows: a jump of the time of day makes nothing late. */
  oldestPending: number | undefined;
}

/** Every loop that there can be, in the order of `/healthz`. */
const LOOPS: readonly string[] = CONTROLLER_NAMES.flatMap((controller) =>
  IP_FAMILIES.map((family) => nameOf({ controller, family }))
);

/**
 * A loop is unhealthy when a sync was asked for and has not succeeded within the time-out. One that
 * has nothing to do stays healthy for ever; one never heard of does not count.
 */
export class ProxyHealth {
  readonly #clock: Pick<Clock, "now" | "wallNow">;
  readonly #timeoutMs: number;
  readonly #loops = new Map<string, LoopTimes>();
  #nodeEligible = false;

  /** `timeoutMs` is twice the sync period, as upstream has it. */
  constructor(
    { clock }: { readonly clock: Pick<Clock, "now" | "wallNow"> },
    { timeoutMs }: { readonly timeoutMs: number },
  ) {
    this.#clock = clock;
    this.#timeoutMs = timeoutMs;
  }

  /** The loop begins. */
  started(loop: LoopId): void {
    this.#loops.set(nameOf(loop), { lastUpdated: this.#clock.wallNow(), oldestPending: undefined });
  }

  /** A sync was asked for. */
  queued(loop: LoopId): void {
    const now = this.#clock.now();
    const times = this.#loops.get(nameOf(loop));
    if (times) times.oldestPending ??= now;
    else this.#loops.set(nameOf(loop), { lastUpdated: 0, oldestPending: now });
  }

  /** A sync succeeded. */
  synced(loop: LoopId): void {
    this.#loops.set(nameOf(loop), { lastUpdated: this.#clock.wallNow(), oldestPending: undefined });
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

  /** Every loop that has been heard of: `IPv4` of Services, `routing/IPv4` of another controller. */
  loops(): ReadonlyMap<string, LoopHealth> {
    const now = this.#clock.now();
    const result = new Map<string, LoopHealth>();
    for (const name of LOOPS) {
      const times = this.#loops.get(name);
      if (!times) continue;
      const { lastUpdated, oldestPending } = times;
      const healthy = oldestPending === undefined || now - oldestPending < this.#timeoutMs;
      result.set(name, { lastUpdated, healthy });
    }
    return result;
  }

  /** Whether every loop that has been heard of is healthy. */
  healthy(): boolean {
    return [...this.loops().values()].every(({ healthy }) => healthy);
  }
}

function nameOf(loop: LoopId): string {
  return loopText(loop, "/");
}
