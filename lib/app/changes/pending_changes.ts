import type { ServicePlan } from "../../proxy/service_plan.ts";
import { type ServiceKey, serviceKey, type ServicePortKey } from "../../proxy/service_port_name.ts";
import type { CauseKind, ChangeAction, ChangeCause, ChangeEffect } from "./change_entry.ts";
import { shortened } from "./change_text.ts";
import { describePlan } from "./describe_plan.ts";
import { type ObjectChange, subjectOf, wordsOfChange } from "./object_change.ts";

/** Most objects and most ServicePorts of one sync that are named; more are counted. */
export const MOST_NAMED = 16;

interface PendingCause {
  readonly change: ObjectChange;
  readonly count: number;
  readonly seenAt: number;
}

/** Changes of objects that are not in effect yet. Takes each in constant time and bounded memory. */
export class PendingCauses {
  readonly #named = new Map<string, PendingCause>();
  readonly #more = new Map<CauseKind, number>();
  #firstSeenAt: number | undefined;

  /** When the first change was seen, by the clock of {@linkcode add}. */
  get firstSeenAt(): number | undefined {
    return this.#firstSeenAt;
  }

  /** Whether there are more changes than are named. */
  get isMany(): boolean {
    return this.#more.size > 0;
  }

  /** Number of the changes that are not named, by kind. */
  get more(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#more);
  }

  /** Adds a change. Changes of one object become one, with the state before the first of them. */
  add(change: ObjectChange, seenAt: number, count = 1): void {
    this.#firstSeenAt ??= seenAt;
    const identity = `${change.kind} ${subjectOf(change).name}`;
    const known = this.#named.get(identity);
    if (known) {
      // Both have the same kind.
      const merged = { ...change, previous: known.change.previous } as ObjectChange;
      this.#named.set(identity, { ...known, change: merged, count: known.count + count });
    } else if (this.#named.size < MOST_NAMED) {
      this.#named.set(identity, { change, count, seenAt });
    } else this.#count(change.kind, count);
  }

  /** Adds later changes. */
  append(later: PendingCauses): void {
    for (const { change, count, seenAt } of later.#named.values()) this.add(change, seenAt, count);
    for (const [kind, count] of later.#more) this.#count(kind, count);
  }

  /**
   * Describes the changes. Leaves out those of Services without a difference in the plan, as `hasEffect`
   * knows; `timeText` formats a time as RFC 3339.
   */
  describe({ hasEffect, timeText }: {
    readonly hasEffect: (service: ServiceKey) => boolean;
    readonly timeText: (at: number) => string;
  }): readonly ChangeCause[] {
    return [...this.#named.values()].flatMap(({ change, count, seenAt }) => {
      const { name, service } = subjectOf(change);
      if (service !== undefined && !hasEffect(service)) return [];
      const { kind, previous, current } = change;
      const action = actionOf(previous, current);
      return [{
        kind,
        name,
        action,
        words: wordsOfChange(change),
        count,
        seenAt: timeText(seenAt),
      }];
    });
  }

  #count(kind: CauseKind, by: number): void {
    this.#more.set(kind, (this.#more.get(kind) ?? 0) + by);
  }
}

/** Plans of ServicePorts that differ from those in effect. Bounded as {@linkcode PendingCauses}. */
export class PendingEffects {
  readonly #named = new Map<
    ServicePortKey,
    { readonly previous: ServicePlan | undefined; readonly next: ServicePlan | undefined }
  >();
  readonly #services = new Set<ServiceKey>();
  readonly #more = new Map<ChangeAction, number>();

  /** Number of the ServicePorts that are not named, by action. */
  get more(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#more);
  }

  /** Adds a ServicePort whose plan has changed. */
  add(previous: ServicePlan | undefined, next: ServicePlan | undefined): void {
    const plan = next ?? previous;
    if (plan === undefined) return;
    const known = this.#named.get(plan.key);
    if (known) this.#named.set(plan.key, { ...known, next });
    else if (this.#named.size < MOST_NAMED) {
      this.#named.set(plan.key, { previous, next });
      this.#services.add(serviceKey(plan.name));
    } else {
      const action = actionOf(previous, next);
      this.#more.set(action, (this.#more.get(action) ?? 0) + 1);
    }
  }

  /** Whether a ServicePort of this Service may be among them. */
  concern(service: ServiceKey): boolean {
    return this.#more.size > 0 || this.#services.has(service);
  }

  /** Describes the differences. */
  describe(): readonly ChangeEffect[] {
    return [...this.#named].flatMap(([key, { previous, next }]) => {
      // Added and deleted before any sync succeeded.
      if (previous === undefined && next === undefined) return [];
      const words = describePlan(previous, next);
      return [{ servicePort: shortened(key), action: actionOf(previous, next), words }];
    });
  }
}

function actionOf(previous: unknown, current: unknown): ChangeAction {
  if (previous === undefined && current !== undefined) return "added";
  return previous !== undefined && current === undefined ? "deleted" : "updated";
}
