import type { Quarantined } from "../../lib/engine/data_plane.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { PolicyKey } from "../../lib/policy/policy_plan.ts";
import { refusedItem, RefusedItems } from "../netfilter/refused_items.ts";
import type { Part } from "./policy_layout.ts";

/**
 * Rules and sets of policies that a tool refused. A policy with one of them allows nothing by the
 * lists that have it, until it is tried again; its pods stay isolated.
 */
export class RefusedParts {
  readonly #clock: Pick<Clock, "now" | "wallNow">;
  readonly #items = new RefusedItems<{ readonly key: Part }>();
  readonly #parts = new Map<Part, ReturnType<RefusedItems["refuse"]>>();

  constructor(clock: Pick<Clock, "now" | "wallNow">) {
    this.#clock = clock;
  }

  /** The tool refused a part. */
  refuse(key: Part, reason: string): void {
    this.#parts.set(key, this.#items.refuse({ key }, { reason, now: this.#clock.now() }));
  }

  /** The parts that a sync which begins now must not try again yet. */
  get waiting(): ReadonlySet<Part> {
    const now = this.#clock.now();
    return new Set(
      this.#parts.entries().filter(([, { retryAt }]) => now < retryAt)
        .map(([key]) => key),
    );
  }

  /** The parts that the last sync left out, whether or not the next one tries them again. */
  get all(): ReadonlySet<Part> {
    return new Set(this.#parts.keys());
  }

  /** Records a successful sync: the parts that it did not leave out were accepted or no longer exist. */
  settle(leftOut: ReadonlySet<Part>): void {
    for (const key of this.#parts.keys()) {
      if (!leftOut.has(key)) this.#forget(key);
    }
  }

  /** The policies that are left out, each with a refused part, for a report. */
  report(leftOut: Iterable<readonly [PolicyKey, Part]>): readonly Quarantined<PolicyKey>[] {
    const found = new Map<PolicyKey, Quarantined<PolicyKey>>();
    for (const [policy, part] of leftOut) {
      const refusal = this.#parts.get(part);
      if (refusal) found.set(policy, refusedItem(this.#clock, policy, refusal));
    }
    return [...found.values()].sort((left, right) => left.key < right.key ? -1 : 1);
  }

  #forget(key: Part): void {
    this.#parts.delete(key);
    this.#items.forget(key);
  }
}
