/**
 * The objects that changed and whose changes are not in effect yet. Takes each change in constant
 * time and holds a few objects, however many change: the others are counted.
 *
 * @module
 */
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import type { CauseKind, ChangeCause } from "./change_entry.ts";
import {
  actionOf,
  identityOf,
  mergedChange,
  nameOfChange,
  type ObjectChange,
  serviceOfChange,
  wordsOfChange,
} from "./object_change.ts";

/** Objects that are named; a person reads no more of one sync. */
const MOST_CAUSES = 16;

/** One object of them. */
interface Pending {
  readonly change: ObjectChange;
  readonly count: number;
  readonly seenAt: number;
}

/** What is kept of them, and how it is written. */
interface DescribeOptions {
  /** Whether something of a Service differs in the plan: what has had no effect is no cause. */
  readonly hasEffect: (service: ServiceKey) => boolean;
  /** From the clock of `seenAt` to RFC 3339. */
  readonly timeText: (at: number) => string;
}

/** Changes that came together. */
export class PendingCauses {
  #named = new Map<string, Pending>();
  #more = new Map<CauseKind, number>();
  #firstSeenAt: number | undefined;

  /** When the first of them was seen, by the clock of {@linkcode add}. */
  get firstSeenAt(): number | undefined {
    return this.#firstSeenAt;
  }

  /** Whether there are more than are named. */
  get isMany(): boolean {
    return this.#more.size > 0;
  }

  /** Changes that are only counted. */
  get more(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#more);
  }

  /** Takes a change. */
  add(change: ObjectChange, seenAt: number): void {
    this.#firstSeenAt ??= seenAt;
    const identity = identityOf(change);
    const known = this.#named.get(identity);
    if (known) {
      const count = known.count + 1;
      this.#named.set(identity, { ...known, change: mergedChange(known.change, change), count });
    } else if (this.#named.size < MOST_CAUSES) {
      this.#named.set(identity, { change, count: 1, seenAt });
    } else this.#count(change.kind, 1);
  }

  /** Takes those of another collection, which came later. */
  append(later: PendingCauses): void {
    for (const { change, count, seenAt } of later.#named.values()) {
      this.add(change, seenAt);
      const known = this.#named.get(identityOf(change));
      if (known === undefined) this.#count(change.kind, count - 1);
      else this.#named.set(identityOf(change), { ...known, count: known.count + count - 1 });
    }
    for (const [kind, count] of later.#more) this.#count(kind, count);
  }

  /** Those that had an effect, in words. */
  describe({ hasEffect, timeText }: DescribeOptions): readonly ChangeCause[] {
    const causes: ChangeCause[] = [];
    for (const { change, count, seenAt } of this.#named.values()) {
      const service = serviceOfChange(change);
      if (service !== undefined && !hasEffect(service)) continue;
      causes.push({
        kind: change.kind,
        name: nameOfChange(change),
        action: actionOf(change.previous, change.current),
        words: wordsOfChange(change),
        count,
        seenAt: timeText(seenAt),
      });
    }
    return causes;
  }

  #count(kind: CauseKind, by: number): void {
    if (by > 0) this.#more.set(kind, (this.#more.get(kind) ?? 0) + by);
  }
}
