/**
 * What a pod may receive or send, from the policies that select it.
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
  /** The canonical form of the list. */
  readonly text: string;
}

/**
 * The rules for a pod in one direction, from the policies that select it, sorted by key. Returns
 * `undefined` if none of them isolates the pod in that direction.
 */
export function ruleListOf(
  policies: readonly Policy[],
  { pod, direction, family }: {
    readonly pod: PolicyPod;
    readonly direction: Direction;
    readonly family: IpFamily;
  },
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
  return { list, sources, text: JSON.stringify(list) };
}

/** The name of a list: equal lists have the same. */
export function ruleListId({ text }: Pick<SourcedRuleList, "text">): RuleListId {
  return contentId(text) as RuleListId;
}

function portsFor({ ports, names }: ParsedRule, pod: PolicyPod): readonly PortRange[] | undefined {
  if (names === undefined) return ports;
  const found = names.flatMap((name) => {
    const port = findPort(pod, name);
    return port === undefined ? [] : [{ protocol: name.protocol, from: port, to: port }];
  });
  return mergePortRanges([...ports ?? [], ...found]);
}
