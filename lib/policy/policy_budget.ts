/**
 * Bounds for what the policies of one namespace may cost every node. A tenant writes policies, and must
 * not take memory or time from the pods of others.
 *
 * @module
 */
import type { NetworkPolicySpec } from "../api/kinds/network_policy.ts";
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
  readonly #policies: CountedPolicy[] = [];
  readonly #places = new Map<PolicyKey, CountedPolicy>();
  /** The number of policies within the budget, and their parts. */
  #admitted = 0;
  #parts = 0;

  get isEmpty(): boolean {
    return this.#policies.length === 0;
  }

  /** Whether a policy is within the budget. */
  isAdmitted(key: PolicyKey): boolean {
    const policy = this.#places.get(key);
    return policy !== undefined && this.#indexOf(policy) < this.#admitted;
  }

  /**
   * Takes a policy as it is now, or removes it. Returns the other policies that are now admitted, or no
   * longer: none, unless the namespace has more than its budget.
   */
  change(key: PolicyKey, current: CountedPolicy | undefined): readonly PolicyKey[] {
    const moved = new Set<PolicyKey>();
    const toggle = ({ key }: CountedPolicy) => {
      if (!moved.delete(key)) moved.add(key);
    };
    this.#remove(key);
    if (current) this.#insert(current);
    while (this.#parts > MOST_NAMESPACE_PARTS) {
      const last = this.#policies[--this.#admitted]!;
      this.#parts -= sizeOf(last);
      toggle(last);
    }
    for (
      let next = this.#policies[this.#admitted];
      next && this.#parts + sizeOf(next) <= MOST_NAMESPACE_PARTS;
      next = this.#policies[this.#admitted]
    ) {
      this.#admitted++;
      this.#parts += sizeOf(next);
      toggle(next);
    }
    moved.delete(key);
    return [...moved];
  }

  #remove(key: PolicyKey): void {
    const known = this.#places.get(key);
    if (known === undefined) return;
    const index = this.#indexOf(known);
    this.#policies.splice(index, 1);
    this.#places.delete(key);
    if (index >= this.#admitted) return;
    this.#admitted--;
    this.#parts -= sizeOf(known);
  }

  #insert(policy: CountedPolicy): void {
    const index = this.#indexOf(policy);
    this.#policies.splice(index, 0, policy);
    this.#places.set(policy.key, policy);
    if (index >= this.#admitted) return;
    this.#admitted++;
    this.#parts += sizeOf(policy);
  }

  /** The place of a policy, or where it belongs. */
  #indexOf(policy: CountedPolicy): number {
    let [low, high] = [0, this.#policies.length];
    while (low < high) {
      const middle = low + high >> 1;
      if (isOlder(this.#policies[middle]!, policy)) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function sizeOf({ parts }: CountedPolicy): number {
  // A policy beyond its own limit is not read.
  return 1 + (parts > MOST_POLICY_PARTS ? 0 : parts);
}

function isOlder(left: CountedPolicy, right: CountedPolicy): boolean {
  const [one, other] = [left.created ?? "", right.created ?? ""];
  return one === other ? left.key < right.key : one < other;
}
