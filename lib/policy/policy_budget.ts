/**
 * Bounds for what the policies of one namespace may cost every node. A tenant writes policies, and must
 * not take memory or time from the pods of others.
 *
 * @module
 */
import type { ClusterNetworkPolicySpec } from "../api/kinds/cluster_network_policy.ts";
import type { NetworkPolicySpec } from "../api/kinds/network_policy.ts";
import { SortedList } from "../net/sorted_list.ts";
import type { PolicyKey } from "./policy_plan.ts";

/** Most rules, ports, peers, exceptions and terms of selectors of one policy. */
export const MOST_POLICY_PARTS = 20_000;
/** The same for all policies of a namespace together; each policy counts as one more part. */
export const MOST_NAMESPACE_PARTS = 50_000;

/** Returns the number of parts of a policy. */
export function countPolicyParts({ podSelector, ingress, egress }: NetworkPolicySpec): number {
  let parts = termsOf(podSelector);
  const rules = [
    ...(ingress ?? []).map(({ from, ports }) => ({ peers: from, ports })),
    ...(egress ?? []).map(({ to, ports }) => ({ peers: to, ports })),
  ];
  for (const { peers = [], ports = [] } of rules) {
    parts += 1 + peers.length + ports.length;
    for (const { podSelector, namespaceSelector, ipBlock } of peers) {
      parts += termsOf(podSelector) + termsOf(namespaceSelector) + (ipBlock?.except?.length ?? 0);
    }
  }
  return parts;
}

/** Returns the number of parts of a ClusterNetworkPolicy. */
export function countClusterPolicyParts(
  { ingress = [], egress = [] }: ClusterNetworkPolicySpec,
): number {
  const rules = [
    ...ingress.map(({ from, protocols }) => ({ peers: from, protocols })),
    ...egress.map(({ to, protocols }) => ({ peers: to, protocols })),
  ];
  return rules.reduce((sum, { peers = [], protocols = [] }) => {
    const ofPeers = peers.map(({ namespaces, pods, nodes, networks = [] }) =>
      1 + networks.length + termsOf(namespaces) + termsOf(nodes) +
      termsOf(pods?.namespaceSelector) + termsOf(pods?.podSelector)
    );
    return ofPeers.reduce((all, parts) => all + parts, sum + 1 + protocols.length);
  }, 0);
}

function termsOf(selector: NetworkPolicySpec["podSelector"]): number {
  const { matchLabels = {}, matchExpressions = [] } = selector ?? {};
  return Object.keys(matchLabels).length +
    matchExpressions.reduce((sum, { values = [] }) => sum + 1 + values.length, 0);
}

/** A policy as its namespace counts it. */
export interface CountedPolicy {
  readonly key: PolicyKey;
  /** The creation time of the policy. Absent = earlier than any other. */
  readonly created: string | undefined;
  readonly parts: number;
}

/**
 * Decides which policies of one namespace are within the budget: the oldest ones, up to the first that
 * does not fit. The order of events makes no difference, so all nodes decide alike, and a new policy
 * never takes the place of one that is in force.
 */
export class NamespaceBudget {
  /** The oldest first. */
  readonly #policies = new SortedList<CountedPolicy>(compareAges);
  readonly #byKey = new Map<PolicyKey, CountedPolicy>();
  /** The number of policies within the budget, and their parts. */
  #admitted = 0;
  #parts = 0;

  get isEmpty(): boolean {
    return this.#byKey.size === 0;
  }

  /** Whether a policy is within the budget. */
  isAdmitted(key: PolicyKey): boolean {
    const policy = this.#byKey.get(key);
    return policy !== undefined && this.#policies.indexOf(policy) < this.#admitted;
  }

  /**
   * Takes a policy as it is now, or removes it. Returns the other policies that are now admitted, or no
   * longer: none, unless the namespace has more than its budget.
   */
  change(key: PolicyKey, current: CountedPolicy | undefined): readonly PolicyKey[] {
    const moved = new Set<PolicyKey>();
    const admit = (policy: CountedPolicy, count: 1 | -1) => {
      this.#admitted += count;
      this.#parts += count * sizeOf(policy);
      if (!moved.delete(policy.key)) moved.add(policy.key);
    };
    const known = this.#byKey.get(key);
    if (known) {
      if (this.isAdmitted(key)) admit(known, -1);
      this.#policies.delete(known);
      this.#byKey.delete(key);
    }
    if (current) {
      this.#policies.add(current);
      this.#byKey.set(key, current);
      if (this.isAdmitted(key)) admit(current, 1);
    }
    const { items } = this.#policies;
    while (this.#parts > MOST_NAMESPACE_PARTS) admit(items[this.#admitted - 1]!, -1);
    for (
      let next = items[this.#admitted];
      next && this.#parts + sizeOf(next) <= MOST_NAMESPACE_PARTS;
      next = items[this.#admitted]
    ) admit(next, 1);
    moved.delete(key);
    return [...moved];
  }
}

function sizeOf({ parts }: CountedPolicy): number {
  // A policy beyond its own limit is not read.
  return 1 + (parts > MOST_POLICY_PARTS ? 0 : parts);
}

function compareAges(left: CountedPolicy, right: CountedPolicy): number {
  const [one, other] = [left, right].map(({ created = "", key }) => `${created} ${key}`);
  return one === other ? 0 : one! < other! ? -1 : 1;
}
