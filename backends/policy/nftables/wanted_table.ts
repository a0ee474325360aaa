/**
 * Returns the table of a plan. Pure.
 *
 * @module
 */
import { sortInSteps } from "../../../lib/net/steps.ts";
import type {
  PeerSet,
  PeerSetId,
  PolicyPlan,
  PolicyRule,
  RuleList,
  RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import type { NftContainer } from "../../netfilter/nft/nft_objects.ts";
import type { ChainChange } from "../../netfilter/nft/nft_transaction.ts";
import { acceptableRules, type LeftOut, type RefusedParts } from "../policy_quarantine.ts";
import { baseChains } from "./base_chains.ts";
import {
  fixedContainers,
  listChain,
  listEnd,
  peerKeys,
  peersContainer,
  peersName,
  podChains,
  podElements,
  PORT_SET,
  type PortSet,
  portSetOf,
  ruleTexts,
} from "./layout.ts";

/** A rule or set, as it is refused. */
export type Part = string;

/** An element without its set, and the part that it belongs to. */
export interface WantedElement {
  readonly value?: string | undefined;
  readonly owner?: Part | undefined;
}

/** A list as it is written. */
export interface WrittenList {
  readonly chain: ChainChange<Part>;
  readonly portSets: readonly PortSet[];
  readonly leftOut: LeftOut;
}

/** The whole content of the table. */
export interface WantedTable {
  readonly containers: ReadonlyMap<string, NftContainer>;
  readonly chains: ReadonlyMap<string, ChainChange<Part>>;
  /** Elements by set or map, and by key. */
  readonly elements: ReadonlyMap<string, ReadonlyMap<string, WantedElement>>;
  readonly lists: ReadonlyMap<RuleListId, WrittenList>;
  readonly peers: ReadonlySet<PeerSetId>;
}

/** Members between two pauses: well under a millisecond. */
const MEMBERS_PER_STEP = 2_000;
/** Keys of one set between two pauses: each is spelled from a range. */
const KEYS_PER_STEP = 512;

/** Formats a list, without the parts in quarantine. */
export function writeList(
  id: RuleListId,
  list: RuleList,
  { plan, refused }: { readonly plan: PolicyPlan; readonly refused: RefusedParts },
): WrittenList {
  const { direction } = list;
  const spell = (rule: PolicyRule) => ruleTexts(rule, { direction, plan });
  const partsOf = (rule: PolicyRule) => [
    ...spell(rule),
    ...(rule.peers ?? []).map(peersName),
    portSetOf(rule)?.name ?? "",
  ];
  const { rules, leftOut } = acceptableRules(list, { refused, partsOf });
  const texts = [...new Set(rules.flatMap(spell))];
  const chain = {
    name: listChain(id),
    rules: [...texts, ...listEnd(plan, direction)],
    ruleOwners: texts,
  };
  const portSets = new Map(
    rules.flatMap((rule) => portSetOf(rule) ?? []).map((set) => [set.name, set]),
  );
  return { chain, portSets: [...portSets.values()], leftOut };
}

/** Makes the table of a plan in short steps. Names are sorted: the same plan gives the same table. */
export function* wantedTable(
  plan: PolicyPlan,
  refused: RefusedParts = new Set(),
): Generator<void, WantedTable> {
  const containers = new Map(fixedContainers(plan.family));
  const chains = new Map<string, ChainChange<Part>>();
  const elements = new Map<string, Map<string, WantedElement>>();
  const put = (container: string, key: string, element: WantedElement) => {
    const known = elements.get(container);
    if (known) known.set(key, element);
    else elements.set(container, new Map([[key, element]]));
  };
  const addSet = (name: string, container: NftContainer, keys: Iterable<string>) => {
    containers.set(name, container);
    for (const key of keys) put(name, key, { owner: name });
  };
  for (const chain of baseChains(plan)) chains.set(chain.name, chain);
  const peers = new Set<PeerSetId>();
  let members = 0;
  for (const [id, set] of sorted(plan.peers)) {
    if (refused.has(peersName(id))) continue;
    peers.add(id);
    addSet(peersName(id), peersContainer(set, plan.family), yield* sortedKeys(set));
    members += 1 + set.members.size;
    if (members >= MEMBERS_PER_STEP) yield void (members = 0);
  }
  const lists = new Map<RuleListId, WrittenList>();
  for (const [id, list] of sorted(plan.lists)) {
    const written = writeList(id, list, { plan, refused });
    lists.set(id, written);
    chains.set(written.chain.name, written.chain);
    for (const { name, keys } of written.portSets) addSet(name, PORT_SET, keys);
    members += 10 * (1 + list.rules.length);
    if (members >= MEMBERS_PER_STEP) yield void (members = 0);
  }
  for (const [, pod] of sorted(plan.pods)) {
    for (const chain of podChains(pod, plan)) chains.set(chain.name, chain);
    for (const { container, key, value } of podElements(pod, plan)) put(container, key, { value });
  }
  return { containers, chains, elements, lists, peers };
}

function sorted<K extends string, V>(map: ReadonlyMap<K, V>): readonly (readonly [K, V])[] {
  return [...map].sort(([left], [right]) => left < right ? -1 : 1);
}

/** Ranges are spelled and sorted in steps: a set may have tens of thousands. */
function* sortedKeys(set: PeerSet): Generator<void, readonly string[]> {
  const keys: string[] = [];
  for (const key of peerKeys(set)) {
    keys.push(key);
    if (keys.length % KEYS_PER_STEP === 0) yield;
  }
  return yield* sortInSteps(keys, (left, right) => left < right ? -1 : left > right ? 1 : 0);
}
