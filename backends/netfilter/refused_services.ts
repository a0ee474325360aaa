/**
 * ServicePorts whose rules the kernel refused, and when to try them again. Pure but for its own state.
 *
 * @module
 */
import type { Clock } from "../../lib/os/clock.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";

/** Why a ServicePort was refused, and from when on it is tried again. */
interface Refusal {
  readonly reason: string;
  /** By the clock that was given, milliseconds. */
  readonly retryAt: number;
}

interface KnownRefusal extends Refusal {
  readonly plan: ServicePlan;
  readonly failures: number;
}

/** A try costs a write that fails, a read of everything and a write without it. */
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 300_000;

/** The refused ones. Times are those of one clock, milliseconds. */
export class RefusedServices {
  readonly #refusals = new Map<ServicePortKey, KnownRefusal>();

  /** The kernel refused this plan. */
  refuse(
    plan: ServicePlan,
    { reason, now }: { readonly reason: string; readonly now: number },
  ): Refusal {
    const failures = (this.#refusals.get(plan.key)?.failures ?? 0) + 1;
    const pause = Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), LONGEST_RETRY_MS);
    const refusal = { plan, reason, failures, retryAt: now + pause };
    this.#refusals.set(plan.key, refusal);
    return refusal;
  }

  /**
   * Why this very plan was refused, while it is too early to try it again. A changed one may be tried
   * at once.
   */
  waitingFor(plan: ServicePlan, now: number): Refusal | undefined {
    const refusal = this.#refusals.get(plan.key);
    return refusal?.plan === plan && now < refusal.retryAt ? refusal : undefined;
  }

  /** What all rules depend on has changed, so they may well be taken now. */
  forgetAll(): void {
    this.#refusals.clear();
  }

  /** It was accepted, or is gone. */
  forget(key: ServicePortKey): void {
    this.#refusals.delete(key);
  }
}

/** A refusal as the process tells it, with the time of day. */
export function refusedItem(
  clock: Pick<Clock, "now" | "wallNow">,
  key: ServicePortKey,
  { reason, retryAt }: Refusal,
): Quarantined {
  const at = clock.wallNow() + retryAt - clock.now();
  return { key, reason, retryAt: new Date(at).toISOString() };
}

/** What the kernel refused, by ServicePort: nothing of these is to be there, or another plan is. */
export function refusedByKey(
  quarantined: readonly Quarantined[] = [],
): ReadonlyMap<ServicePortKey, Quarantined> {
  const refused = quarantined.filter(({ address, retryAt }) =>
    address === undefined && retryAt !== undefined
  );
  return new Map(refused.map((item) => [item.key, item]));
}
