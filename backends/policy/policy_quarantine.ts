/**
 * Rules and sets of policies that a tool refused. A policy with one of them allows nothing by the lists
 * that have it, until it is tried again; its pods stay isolated.
 *
 * @module
 */
import type { Quarantined } from "../../lib/engine/data_plane.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { PolicyKey, PolicyRule, RuleList } from "../../lib/policy/policy_plan.ts";
import { refusedItem, RefusedItems } from "../netfilter/refused_items.ts";

/** A rule or a set, as the tool names it. */
interface Part {
  readonly key: string;
}

/** Rules and sets that are left out. */
export type RefusedParts = Pick<ReadonlySet<string>, "has">;

/** A policy that is left out of a list, by the part that was refused. */
export type LeftOut = ReadonlyMap<PolicyKey, string>;

/** A list without refused parts. */
export interface AcceptableRules {
  readonly rules: readonly PolicyRule[];
  readonly leftOut: LeftOut;
}

/** More parts than this are forgotten, and so tried again. */
const MOST_PARTS = 1_000;

/** The refused parts of policies. Pure except for its own state. */
export class PolicyQuarantine {
  readonly #clock: Pick<Clock, "now" | "wallNow">;
  readonly #refused = new RefusedItems<Part>();
  readonly #parts = new Map<string, Part>();

  constructor({ clock }: { readonly clock: Pick<Clock, "now" | "wallNow"> }) {
    this.#clock = clock;
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

  /** The parts that a sync which begins now must not try again yet. */
  waitingAt(now: number): RefusedParts {
    return { has: (key) => this.#refusal(key, now) !== undefined };
  }

  /** The parts that the last sync left out, whether or not the next one tries them again. */
  get held(): RefusedParts {
    return this.#parts;
  }

  /** Records a successful sync: the parts that it did not leave out were accepted or no longer exist. */
  settle(leftOut: RefusedParts): void {
    for (const key of this.#parts.keys()) {
      if (leftOut.has(key)) continue;
      this.#parts.delete(key);
      this.#refused.forget(key);
    }
  }

  /** The policies that are left out, for a report. */
  report(lists: Iterable<LeftOut>): readonly Quarantined<PolicyKey>[] {
    const found = new Map<PolicyKey, Quarantined<PolicyKey>>();
    for (const [policy, part] of [...lists].flatMap((leftOut) => [...leftOut])) {
      const refusal = this.#refusal(part, -Infinity);
      if (refusal) found.set(policy, refusedItem(this.#clock, policy, refusal));
    }
    return [...found.values()].sort((left, right) => left.key < right.key ? -1 : 1);
  }

  #refusal(key: string, now: number) {
    const part = this.#parts.get(key);
    return part && this.#refused.waitingFor(part, now);
  }
}

/** The rules of a list without those of policies with a refused part. */
export function acceptableRules(
  { rules }: Pick<RuleList, "rules">,
  { refused, partsOf }: {
    readonly refused: RefusedParts;
    readonly partsOf: (rule: PolicyRule) => Iterable<string>;
  },
): AcceptableRules {
  const leftOut = new Map<PolicyKey, string>();
  for (const rule of rules) {
    for (const part of partsOf(rule)) if (refused.has(part)) leftOut.set(rule.policy, part);
  }
  if (leftOut.size === 0) return { rules, leftOut };
  return { rules: rules.filter(({ policy }) => !leftOut.has(policy)), leftOut };
}
