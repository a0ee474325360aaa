/**
 * Bounds the rules that the policies of one namespace cost a node. Each pod may have a list of its own,
 * so a bound of lists alone does not bound what one tenant can make a node write.
 *
 * @module
 */
import type { PodKey } from "./policy_plan.ts";
import type { PolicyPod } from "./policy_pod.ts";

/** Most rules of all lists of a namespace's pods on one node, in one family. Pods share equal lists. */
export const MOST_NODE_RULES = 20_000;

/** Most rules of a list. */
export const MOST_RULES = 5_000;

/** A list that a pod needs. Pods that need lists with the same key share one. */
export interface ListNeed {
  readonly key: string;
  readonly rules: number;
}

/** A pod with the lists that it needs. */
interface PodNeeds {
  readonly pod: PolicyPod;
  readonly lists: readonly ListNeed[];
}

/** The pods of one namespace on one node. */
interface Room {
  readonly needs: Map<PodKey, PodNeeds>;
  /** The pods for whose lists there is no room. */
  refused: ReadonlySet<PodKey>;
}

/** Pods whose lists there is no room for. */
export interface RefusedPods {
  readonly namespace: string;
  readonly pods: readonly PodKey[];
  /** All pods of the namespace on the node, and the rules that they need together. */
  readonly ofPods: number;
  readonly rules: number;
}

/**
 * Decides which pods get their lists: the oldest ones, as long as there is room. The order of events
 * makes no difference, and a new pod never takes the room of one that has its rules.
 */
export class RuleRooms {
  readonly #rooms = new Map<string, Room>();
  readonly #places = new Map<PodKey, string>();
  readonly #changed = new Set<string>();

  /** Whether there is no room for the rules of a pod. */
  isRefused(key: PodKey): boolean {
    return this.#rooms.get(this.#places.get(key) ?? "")?.refused.has(key) ?? false;
  }

  /** Forgets a pod. */
  delete(key: PodKey): void {
    const before = this.#places.get(key);
    if (before !== undefined) {
      this.#places.delete(key);
      this.#rooms.get(before)?.needs.delete(key);
      this.#changed.add(before);
    }
  }

  /** Takes what a pod needs now. A list that is too large by itself is left empty in any case. */
  set(pod: PolicyPod, needs: readonly (ListNeed | undefined)[]): void {
    const { key, nodeName, namespace } = pod;
    this.delete(key);
    const lists = needs.filter((need) => need !== undefined)
      .filter(({ rules }) => rules <= MOST_RULES);
    if (lists.length === 0) return;
    const place = `${nodeName ?? ""} ${namespace}`;
    this.#places.set(key, place);
    this.#rooms.getOrInsertComputed(place, () => ({ needs: new Map(), refused: new Set() }))
      .needs.set(key, { pod, lists });
    this.#changed.add(place);
  }

  /** Decides for what changed. Returns the pods that are refused now and were not, or the reverse. */
  decide(): { readonly moved: ReadonlySet<PodKey>; readonly refused: readonly RefusedPods[] } {
    const moved = new Set<PodKey>();
    const refused: RefusedPods[] = [];
    for (const place of this.#changed) {
      const room = this.#rooms.get(place)!;
      const before = room.refused;
      const rules = rulesOf(room.needs.values());
      room.refused = rules > MOST_NODE_RULES ? newestBeyond(room.needs) : new Set();
      const changed = before.symmetricDifference(room.refused);
      for (const key of changed) moved.add(key);
      const pods = [...room.refused];
      const namespace = place.slice(place.indexOf(" ") + 1);
      if (changed.size > 0 && pods.length > 0) {
        refused.push({ namespace, pods, ofPods: room.needs.size, rules });
      }
      if (room.needs.size === 0) this.#rooms.delete(place);
    }
    this.#changed.clear();
    return { moved, refused };
  }
}

function rulesOf(needs: Iterable<PodNeeds>): number {
  const rulesByKey = new Map<string, number>();
  for (const { lists } of needs) for (const { key, rules } of lists) rulesByKey.set(key, rules);
  return rulesByKey.values().reduce((sum, rules) => sum + rules, 0);
}

function newestBeyond(needs: Room["needs"]): ReadonlySet<PodKey> {
  const refused = new Set<PodKey>();
  const written = new Set<string>();
  let room = MOST_NODE_RULES;
  const oldestFirst = Array.from(needs, ([key, { pod, lists }]) => {
    return { key, lists, age: `${pod.object.metadata.creationTimestamp ?? ""} ${key}` };
  }).sort((left, right) => left.age < right.age ? -1 : 1);
  for (const { key, lists } of oldestFirst) {
    const added = lists.filter((list) => !written.has(list.key));
    const rules = added.reduce((sum, list) => sum + list.rules, 0);
    if (rules > room) {
      refused.add(key);
      continue;
    }
    room -= rules;
    for (const list of added) written.add(list.key);
  }
  return refused;
}
