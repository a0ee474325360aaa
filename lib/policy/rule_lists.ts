/**
 * Computes the rules of a pod's traffic from the policies that select it.
 *
 * @module
 */
import type { IpFamily } from "../net/ip_address.ts";
import { atOnce } from "../net/steps.ts";
import { contentIdInSteps } from "./content_id.ts";
import type { PeerSource } from "./peer_source.ts";
import type { ParsedRule, Policy } from "./policy.ts";
import type { Direction, PolicyRule, PortRange, RuleList, RuleListId } from "./policy_plan.ts";
import { findPorts, type PolicyPod } from "./policy_pod.ts";
import { mergePortRanges } from "./policy_ports.ts";

/** A list, and the sources of the sets that it names. */
export interface SourcedRuleList {
  readonly list: RuleList;
  readonly sources: readonly PeerSource[];
  /** The list would have so many rules, which is too many: it has none, and denies everything. */
  readonly excess?: number;
}

/** The inputs of a list besides the policies. */
interface ListedPod {
  readonly pod: PolicyPod;
  readonly direction: Direction;
  readonly family: IpFamily;
}

/** A list with its name. */
type NamedRuleList = SourcedRuleList & { readonly id: RuleListId };

/**
 * Most rules of a list, one for each set of peers. Every pod may have a list of its own, so this bounds
 * what the pods of one tenant can cost a node.
 */
export const MOST_RULES = 5_000;
/** More lists than a node has pods are not kept. */
const MOST_LISTS = 1_024;
/** Rules between two pauses. */
const RULES_PER_STEP = 256;

/** Makes each list once for all pods that the same policies select, and names it by its content. */
export class RuleListCache {
  readonly #lists = new Map<string, NamedRuleList | undefined>();

  /** As {@linkcode ruleListInSteps}. Equal lists have the same id. */
  *listOf(
    policies: readonly Policy[],
    of: ListedPod,
  ): Generator<void, NamedRuleList | undefined, void> {
    // The key of 10,000 policies is long.
    const key = yield* contentIdInSteps(keyTexts(policies, of));
    if (this.#lists.has(key)) return this.#lists.get(key);
    const made = yield* ruleListInSteps(policies, of);
    const named = made && { ...made, id: yield* idOf(made.list) };
    if (this.#lists.size >= MOST_LISTS) this.clear();
    this.#lists.set(key, named);
    return named;
  }

  /** Forgets the lists: a policy has changed. */
  clear(): void {
    this.#lists.clear();
  }
}

function* keyTexts(
  policies: readonly Policy[],
  { pod, direction, family }: ListedPod,
): Generator<string, void, void> {
  yield `${direction} ${family}`;
  for (const { key, names } of policies) {
    yield key;
    if (direction !== "ingress") continue;
    for (const port of findPorts(pod, names)) yield `${port ?? 0}`;
  }
}

function* idOf(
  { direction, policies, rules }: RuleList,
): Generator<void, RuleListId, void> {
  function* texts() {
    yield direction;
    yield* policies;
    for (const rule of rules) yield JSON.stringify(rule);
  }
  return (yield* contentIdInSteps(texts())) as RuleListId;
}

/** Returns the list that {@linkcode ruleListInSteps} makes. */
export function ruleListOf(
  policies: readonly Policy[],
  of: ListedPod,
): SourcedRuleList | undefined {
  return atOnce(ruleListInSteps(policies, of));
}

/**
 * Makes the rules for a pod in one direction, from the policies that select it, sorted by key. Returns
 * `undefined` if none of them isolates the pod in that direction.
 */
function* ruleListInSteps(
  policies: readonly Policy[],
  { pod, direction, family }: ListedPod,
): Generator<void, SourcedRuleList | undefined, void> {
  const isolating = policies.filter(({ rules }) => rules[direction] !== undefined);
  if (isolating.length === 0) return undefined;
  const rules: PolicyRule[] = [];
  const sources: PeerSource[] = [];
  let [seen, size] = [0, 0];
  for (const { key: policy, rules: own } of isolating) {
    for (const rule of own[direction]?.[family] ?? []) {
      if (++seen % RULES_PER_STEP === 0) yield;
      const ports = portsFor(rule, pod);
      // Names that stand for nothing here: the rule must not become one for every port.
      if (ports?.length === 0) continue;
      const { index, peers } = rule;
      size += peers?.length ?? 1;
      if (size > MOST_RULES) continue;
      for (const peer of peers ?? []) sources.push(peer);
      rules.push({
        policy,
        index,
        ...(peers && { peers: peers.map(({ id }) => id) }),
        ...(ports && { ports }),
      });
    }
  }
  const list = { direction, policies: isolating.map(({ key }) => key) };
  if (size > MOST_RULES) return { list: { ...list, rules: [] }, sources: [], excess: size };
  return { list: { ...list, rules }, sources };
}

function portsFor({ ports, names }: ParsedRule, pod: PolicyPod): readonly PortRange[] | undefined {
  if (names === undefined) return ports;
  const found = findPorts(pod, names).flatMap((port, index) => {
    return port === undefined ? [] : [{ protocol: names[index]!.protocol, from: port, to: port }];
  });
  return mergePortRanges([...ports ?? [], ...found]);
}
