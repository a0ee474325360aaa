/**
 * The cluster as policies see it, for the planners of all families.
 *
 * @module
 */
import type { Clock } from "../../os/clock.ts";
import { runInSlices } from "../../os/time_slice.ts";
import type { PolicyPlanChanges } from "../../policy/policy_plan.ts";
import type { PolicyPlanner } from "../../policy/policy_planner.ts";
import { PolicyState } from "../../policy/policy_state.ts";

/** Keeps the state still while a plan is made from it in pieces. */
export class PolicyInputs {
  readonly state = new PolicyState();
  readonly #clock: Clock;
  readonly #waiting: (() => void)[] = [];
  #planning = 0;

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /** Runs an action that changes the state, or reads a plan: now, or once no plan is being made. */
  whenStill(action: () => void): void {
    if (this.#planning === 0) action();
    else this.#waiting.push(action);
  }

  /** Brings a plan up to date. */
  async plan(
    planner: Pick<PolicyPlanner, "updateInSteps">,
  ): Promise<PolicyPlanChanges> {
    this.#planning++;
    try {
      return await runInSlices(this.#clock, planner.updateInSteps());
    } finally {
      this.#planning--;
      this.#runWaiting();
    }
  }

  /** An action may ask for a sync, which begins to plan at once. */
  #runWaiting(): void {
    let done = 0;
    while (this.#planning === 0 && done < this.#waiting.length) this.#waiting[done++]!();
    this.#waiting.splice(0, done);
  }
}
