/**
 * Computes the rules of a pod's traffic from the policies that select it.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import { contentId } from "./content_id.ts";
import type { PeerSource } from "./peer_source.ts";
import type { ParsedRule, Policy } from "./policy.ts";
import type { Direction, PolicyRule, PortRange, RuleList, RuleListId } from "./policy_plan.ts";
import { findPort, type PolicyPod } from "./policy_pod.ts";
import { mergePortRanges } from "./policy_ports.ts";

/** A list, and the sources of the sets that it names. */
export interface SourcedRuleList {
  readonly list: RuleList;
  readonly sources: readonly PeerSource[];
}

/** The inputs of a list besides the policies. */
interface ListedPod {
  readonly pod: PolicyPod;
  readonly direction: Direction;
  readonly family: IpFamily;
}

/** More lists than a node has pods are not kept. */
const MOST_LISTS = 1_024;

/** Makes each list once for all pods that the same policies select, and names it by its content. */
export class RuleListCache {
  readonly #lists = new Map<string, SourcedRuleList & { readonly id: RuleListId } | undefined>();

  /** As {@linkcode ruleListOf}. Equal lists have the same id. */
  listOf(
    policies: readonly Policy[],
    of: ListedPod,
  ): SourcedRuleList & { readonly id: RuleListId } | undefined {
    const ports = policies.flatMap(({ names }) => names).map((name) => findPort(of.pod, name) ?? 0);
    const keys = policies.map(({ key }) => key);
    const key = [of.direction, of.family, ...keys, ...of.direction === "ingress" ? ports : []]
      .join();
    if (this.#lists.has(key)) return this.#lists.get(key);
    const made = ruleListOf(policies, of);
    const named = made && { ...made, id: contentId(JSON.stringify(made.list)) as RuleListId };
    if (this.#lists.size >= MOST_LISTS) this.clear();
    this.#lists.set(key, named);
    return named;
  }

  /** Forgets the lists: a policy has changed. */
  clear(): void {
    this.#lists.clear();
  }
}

/**
 * The rules for a pod in one direction, from the policies that select it, sorted by key. Returns
 * `undefined` if none of them isolates the pod in that direction.
 */
export function ruleListOf(
  policies: readonly Policy[],
  { pod, direction, family }: ListedPod,
): SourcedRuleList | undefined {
  const isolating = policies.filter(({ rules }) => rules[direction] !== undefined);
  if (isolating.length === 0) return undefined;
  const rules: PolicyRule[] = [];
  const sources: PeerSource[] = [];
  for (const { key: policy, rules: own } of isolating) {
    for (const rule of own[direction]?.[family] ?? []) {
      const ports = portsFor(rule, pod);
      // Names that stand for nothing here: the rule must not become one for every port.
      if (ports?.length === 0) continue;
      const { index, peers } = rule;
      sources.push(...peers ?? []);
      rules.push({
        policy,
        index,
        ...(peers && { peers: peers.map(({ id }) => id) }),
        ...(ports && { ports }),
      });
    }
  }
  const list = { direction, policies: isolating.map(({ key }) => key), rules };
  return { list, sources };
}

function portsFor({ ports, names }: ParsedRule, pod: PolicyPod): readonly PortRange[] | undefined {
  if (names === undefined) return ports;
  const found = names.flatMap((name) => {
    const port = findPort(pod, name);
    return port === undefined ? [] : [{ protocol: name.protocol, from: port, to: port }];
  });
  return mergePortRanges([...ports ?? [], ...found]);
}
