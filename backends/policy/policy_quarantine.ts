/**
 * Rules and sets of policies that a tool refused. A policy with one of them allows nothing by the lists
 * that have it, until it is tried again; its pods stay isolated.
 *
 * @module
 */
import type { Quarantined } from "../../lib/controller/data_plane.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { PolicyKey, PolicyRule, RuleList } from "../../lib/policy/policy_plan.ts";
import { refusedItem, RefusedItems } from "../netfilter/refused_items.ts";

/** A rule or a set, in the words of the tool. */
interface Part {
  readonly key: string;
}

/** A policy that is left out of a list, by the part that was refused. */
export type LeftOut = ReadonlyMap<PolicyKey, string>;

/** A list without what was refused. */
export interface AcceptableRules {
  readonly rules: readonly PolicyRule[];
  readonly leftOut: LeftOut;
}

/** More parts than this are forgotten, and so tried again. */
const MOST_PARTS = 1_000;

/** What was refused. Pure but for its own state. */
export class PolicyQuarantine {
  readonly #clock: Pick<Clock, "now" | "wallNow">;
  readonly #refused = new RefusedItems<Part>();
  readonly #parts = new Map<string, Part>();

  constructor({ clock }: { readonly clock: Pick<Clock, "now" | "wallNow"> }) {
    this.#clock = clock;
  }

  /** Whether nothing was ever refused, or all of it is forgotten. */
  get isEmpty(): boolean {
    return this.#parts.size === 0;
  }

  /** The tool refused a part. */
  refuse(key: string, reason: string): void {
    if (this.#parts.size >= MOST_PARTS) {
      this.#parts.clear();
      this.#refused.forgetAll();
    }
    const part = this.#parts.get(key) ?? { key };
    this.#parts.set(key, part);
    this.#refused.refuse(part, { reason, now: this.#clock.now() });
  }

  /** Whether it is too early to try a part again. */
  isWaiting(key: string): boolean {
    return this.#waiting(key) !== undefined;
  }

  /** The parts that are not waiting any more were accepted, or are gone. */
  settle(): void {
    for (const key of this.#parts.keys()) {
      if (this.isWaiting(key)) continue;
      this.#parts.delete(key);
      this.#refused.forget(key);
    }
  }

  /** The rules of a list without those of policies with a refused part. */
  acceptable(
    { rules }: Pick<RuleList, "rules">,
    partsOf: (rule: PolicyRule) => Iterable<string>,
  ): AcceptableRules {
    const leftOut = new Map<PolicyKey, string>();
    if (this.isEmpty) return { rules, leftOut };
    for (const rule of rules) {
      for (const part of partsOf(rule)) {
        if (this.isWaiting(part)) leftOut.set(rule.policy, part);
      }
    }
    return { rules: rules.filter(({ policy }) => !leftOut.has(policy)), leftOut };
  }

  /** The policies that are left out, for a report. */
  report(lists: Iterable<LeftOut>): readonly Quarantined<PolicyKey>[] {
    const found = new Map<PolicyKey, Quarantined<PolicyKey>>();
    for (const [policy, part] of [...lists].flatMap((leftOut) => [...leftOut])) {
      const refusal = this.#waiting(part, -Infinity);
      if (refusal) found.set(policy, refusedItem(this.#clock, policy, refusal));
    }
    return [...found.values()].sort((left, right) => left.key < right.key ? -1 : 1);
  }

  #waiting(key: string, now = this.#clock.now()) {
    const part = this.#parts.get(key);
    return part && this.#refused.waitingFor(part, now);
  }
}
