/**
 * The rule lists of any pod of the cluster.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import { atOnce } from "../net/steps.ts";
import type { Direction } from "./policy_plan.ts";
import { addressesIn, type PolicyPod } from "./policy_pod.ts";
import type { PolicyState } from "./policy_state.ts";
import { RuleListCache, type SourcedRuleList } from "./rule_lists.ts";
import { type ListNeed, MOST_RULES, RuleRooms } from "./rule_room.ts";

/** Finds the lists that the plan of a pod's node has for it. Good until the state changes. */
export class ClusterLists {
  readonly #state: PolicyState;
  readonly #family: IpFamily;
  readonly #cache = new RuleListCache();
  readonly #rooms = new RuleRooms();
  /** Namespaces of nodes whose pods are in the rooms. */
  readonly #known = new Set<string>();

  constructor(state: PolicyState, family: IpFamily) {
    this.#state = state;
    this.#family = family;
  }

  /** `undefined` = no policy isolates the pod in this direction. */
  listOf(pod: PolicyPod, direction: Direction): SourcedRuleList | undefined {
    const need = this.#needOf(pod, direction);
    if (need === undefined) return undefined;
    const mostRules = this.#isRefused(pod) ? 0 : MOST_RULES;
    const of = { pod, direction, family: this.#family, mostRules };
    return atOnce(this.#cache.listOf(need, this.#state.policiesOf(pod), of));
  }

  #needOf(pod: PolicyPod, direction: Direction): ListNeed | undefined {
    const of = { pod, direction, family: this.#family };
    return atOnce(this.#cache.needOf(this.#state.policiesOf(pod), of));
  }

  #isRefused({ key, namespace, nodeName }: PolicyPod): boolean {
    const place = `${nodeName ?? ""} ${namespace}`;
    if (!this.#known.has(place)) {
      this.#known.add(place);
      for (const pod of this.#state.podsIn(namespace)) {
        if (pod.nodeName !== nodeName || addressesIn(pod, this.#family).length === 0) continue;
        this.#rooms.set(pod, [this.#needOf(pod, "ingress"), this.#needOf(pod, "egress")]);
      }
      this.#rooms.decide();
    }
    return this.#rooms.isRefused(key);
  }
}
