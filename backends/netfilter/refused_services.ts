/**
 * ServicePorts whose rules the kernel refused, and when to try them again. Pure but for its own state.
 *
 * @module
 */
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";

interface Refusal {
  readonly plan: ServicePlan;
  readonly reason: string;
  readonly failures: number;
  readonly retryAt: number;
}

/** A try costs a write that fails, a read of everything and a write without it. */
const FIRST_RETRY_MS = 1_000;
const LONGEST_RETRY_MS = 300_000;

/** The refused ones. Times are those of one clock, milliseconds. */
export class RefusedServices {
  readonly #refusals = new Map<ServicePortKey, Refusal>();

  /** The kernel refused this plan. */
  refuse(
    plan: ServicePlan,
    { reason, now }: { readonly reason: string; readonly now: number },
  ): void {
    const failures = (this.#refusals.get(plan.key)?.failures ?? 0) + 1;
    const pause = Math.min(FIRST_RETRY_MS * 2 ** (failures - 1), LONGEST_RETRY_MS);
    this.#refusals.set(plan.key, { plan, reason, failures, retryAt: now + pause });
  }

  /**
   * Why this very plan was refused, while it is too early to try it again. A changed one may be tried
   * at once.
   */
  waitingFor(plan: ServicePlan, now: number): string | undefined {
    const refusal = this.#refusals.get(plan.key);
    return refusal?.plan === plan && now < refusal.retryAt ? refusal.reason : undefined;
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
