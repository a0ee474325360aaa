/**
 * The rules of one family, kept by the engine.
 *
 * @module
 */
import type { Quarantined } from "../../lib/engine/data_plane.ts";
import { Reconciler } from "../../lib/engine/reconciler.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { PolicyKey, PolicyPlan, PolicyPlanChanges } from "../../lib/policy/policy_plan.ts";
import type { PolicyDifference, PolicyRepair } from "./policy_data_plane.ts";
import { PolicyQuarantine } from "./policy_quarantine.ts";
import type { Part, PolicyGroup, PolicyItem, PolicyTarget } from "./policy_target.ts";
import { addCounts, type WriteCounts } from "./write_counts.ts";

type PolicyEngine = Reconciler<PolicyGroup, PolicyItem, Part>;

/** Writes and compares the policies of one family. */
export class PolicyRules<Each extends PolicyTarget> {
  readonly target: Each;
  readonly #clock: Clock;
  readonly #quarantine: PolicyQuarantine;
  readonly #engine: PolicyEngine;
  readonly #create: (quarantine: PolicyQuarantine) => Each;

  constructor(
    { clock }: { readonly clock: Clock },
    create: (quarantine: PolicyQuarantine) => Each,
  ) {
    this.#clock = clock;
    this.#create = create;
    this.#quarantine = new PolicyQuarantine({ clock });
    this.target = create(this.#quarantine);
    this.#engine = new Reconciler({ clock }, this.target);
  }

  /** Whether the content of the kernel is known; otherwise the next write reads it first. */
  get isKnown(): boolean {
    return this.#engine.isKnown;
  }

  get quarantined(): readonly Quarantined<PolicyKey>[] {
    return this.target.quarantined;
  }

  /** Another program may have changed the rules. */
  forget(): void {
    this.#engine.forget();
  }

  /** Writes the changes. Returns whether everything was compared. */
  async write(
    plan: PolicyPlan,
    { changes, counts }: { readonly changes: PolicyPlanChanges; readonly counts: WriteCounts },
  ): Promise<boolean> {
    if (changes.full) this.forget();
    const { reads } = this.target;
    this.target.takeCounts();
    this.target.want(plan, changes, this.#quarantine.waitingAt(this.#clock.now()));
    await this.#engine.sync();
    addCounts(counts, this.target.takeCounts());
    return this.target.reads > reads;
  }

  /** Compares everything, and writes the differences. Returns what other programs changed. */
  async verify(plan: PolicyPlan): Promise<readonly PolicyDifference[]> {
    // What was left out is no drift, and the next sync tries it again.
    this.target.want(plan, undefined, this.#quarantine.held);
    return this.target.differences(await this.#engine.verify());
  }

  /** Compares the kernel with a plan, except for refused parts. */
  async compare(plan: PolicyPlan): Promise<readonly PolicyDifference[]> {
    const { engine, target } = this.#other(plan);
    return target.differences(await engine.compare());
  }

  /** Writes what {@linkcode compare} finds. */
  async repair(plan: PolicyPlan): Promise<PolicyRepair> {
    const { engine, target } = this.#other(plan);
    const found = target.differences(await engine.compare());
    if (found.length === 0) return { found, left: found, operations: {} };
    target.takeCounts();
    await engine.sync();
    const operations = target.takeCounts();
    return { found, left: target.differences(await engine.compare()), operations };
  }

  /** An engine for a plan of its own. */
  #other(plan: PolicyPlan) {
    const target = this.#create(this.#quarantine);
    target.want(plan, undefined, this.#quarantine.held);
    return { target, engine: new Reconciler({ clock: this.#clock }, target) };
  }
}
