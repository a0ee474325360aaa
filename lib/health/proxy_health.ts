import { TO_BE_DELETED_TAINT } from "../api/labels.ts";
import { CONTROLLER_NAMES, loopText } from "../engine/loop_id.ts";
import type { SyncEvent } from "../engine/sync_event.ts";
import { IP_FAMILIES } from "../net/ip_address.ts";
import type { Clock } from "../os/clock.ts";

/** The fields of the Node that decide whether load balancers may use it. */
export interface NodeEligibility {
  readonly deletionTimestamp?: string;
  readonly taints?: readonly { readonly key: string }[];
}

/** Every possible loop, in the order of `/healthz`. */
const LOOPS: readonly string[] = CONTROLLER_NAMES.flatMap((controller) =>
  IP_FAMILIES.map((family) => loopText({ controller, family }, "/"))
);

/**
 * Tracks requested, running and successful syncs. A loop is unhealthy if a requested or running sync
 * has not succeeded within the timeout. A loop without work stays healthy; an unknown loop does not
 * count.
 */
export class ProxyHealth {
  readonly #loops = new Map<string, {
    /** Time of day, for people. */
    readonly lastUpdated: number;
    /** On the monotonic clock: a jump of the time of day delays nothing. */
    oldestPending: number | undefined;
  }>();
  #nodeEligible = false;

  /** `timeoutMs` is twice the sync period, as in kube-proxy. */
  constructor(
    private readonly edges: { readonly clock: Pick<Clock, "now" | "wallNow"> },
    private readonly options: { readonly timeoutMs: number },
  ) {}

  /** Notes what happens in a loop. */
  on({ kind, loop }: Pick<SyncEvent, "kind" | "loop">): void {
    const name = loopText(loop, "/");
    if (kind === "started" || kind === "synced") {
      this.#loops.set(name, { lastUpdated: this.edges.clock.wallNow(), oldestPending: undefined });
    } else if (kind === "queued" || kind === "running") {
      // A sync need not have a request: a success clears those that came meanwhile, too.
      const now = this.edges.clock.now();
      const times = this.#loops.get(name);
      if (times) times.oldestPending ??= now;
      else this.#loops.set(name, { lastUpdated: 0, oldestPending: now });
    }
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

  /**
   * Returns every known loop: `IPv4` of Services, `routing/IPv4` of another controller. `lastUpdated` are
   * milliseconds since 1970 of the last successful sync, or of the start of the sync loop.
   */
  loops(): ReadonlyMap<string, { readonly lastUpdated: number; readonly healthy: boolean }> {
    const now = this.edges.clock.now();
    const result = new Map<string, { readonly lastUpdated: number; readonly healthy: boolean }>();
    for (const name of LOOPS) {
      const times = this.#loops.get(name);
      if (!times) continue;
      const { lastUpdated, oldestPending } = times;
      const healthy = oldestPending === undefined || now - oldestPending < this.options.timeoutMs;
      result.set(name, { lastUpdated, healthy });
    }
    return result;
  }

  /** Whether every known loop is healthy. */
  healthy(): boolean {
    return [...this.loops().values()].every(({ healthy }) => healthy);
  }
}
