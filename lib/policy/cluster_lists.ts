/**
 * The rule lists of any pod of the cluster.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import { atOnce } from "../net/steps.ts";
import type { Policy } from "./policy.ts";
import type { Direction } from "./policy_plan.ts";
import { addressesIn, type PolicyPod } from "./policy_pod.ts";
import type { PolicyState } from "./policy_state.ts";
import { RuleListCache, type SourcedRuleList } from "./rule_lists.ts";
import { MOST_RULES, RuleRooms } from "./rule_room.ts";

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
    const policies = this.#state.policiesOf(pod);
    const of = { pod, direction, family: this.#family };
    const need = this.#needOf(policies, of);
    if (need === undefined) return undefined;
    const mostRules = this.#isRefused(pod) ? 0 : MOST_RULES;
    return atOnce(this.#cache.listOf(need, policies, { ...of, mostRules }));
  }

  #needOf(
    policies: readonly Policy[],
    of: { readonly pod: PolicyPod; readonly direction: Direction; readonly family: IpFamily },
  ) {
    return atOnce(this.#cache.needOf(policies, of));
  }

  #isRefused({ key, namespace, nodeName }: PolicyPod): boolean {
    const place = `${nodeName ?? ""} ${namespace}`;
    if (!this.#known.has(place)) {
      this.#known.add(place);
      for (const pod of this.#state.podsIn(namespace)) {
        if (pod.nodeName !== nodeName || addressesIn(pod, this.#family).length === 0) continue;
        const policies = this.#state.policiesOf(pod);
        this.#rooms.set(pod, [
          this.#needOf(policies, { pod, direction: "ingress", family: this.#family }),
          this.#needOf(policies, { pod, direction: "egress", family: this.#family }),
        ]);
      }
      this.#rooms.decide();
    }
    return this.#rooms.isRefused(key);
  }
}
