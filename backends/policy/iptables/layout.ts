/**
 * NetworkPolicy as chains of iptables and sets of ipset. Pure.
 *
 * @module
 */
import { type Cidr, parseCidr } from "../../../lib/net/cidr.ts";
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import type { NestedBlocks } from "../../../lib/net/nested_blocks.ts";
import type {
  Direction,
  PeerSet,
  PeerSetId,
  PodPlan,
  PodPort,
  PolicyPlan,
  PolicyRule,
  PortRange,
  RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import { createOptions, entryOfCidr, type SetType } from "../../netfilter/ipset/ipset_text.ts";
import { type Rule, ruleText } from "../../netfilter/iptables/iptables_objects.ts";
import { denyLogPrefix, DIRECTIONS } from "../policy_data_plane.ts";
import { acceptableRules, type LeftOut, type RefusedParts } from "../policy_quarantine.ts";
import {
  baseChains,
  DENIED,
  DENY_COUNTED,
  goTo,
  isolatedSet,
  knownSet,
  listChainName,
  matchSet,
  PEER_SIDE,
  type PolicyChain,
  setPrefix,
} from "./base_chains.ts";
import { dispatchChains } from "./dispatch_chains.ts";

/** A set with its options, and its entries as they are written. */
export interface PolicySet {
  readonly name: string;
  readonly options: string;
  readonly entries: Iterable<string>;
}

/** The chain of a list, without the policies that have a refused part. */
interface ListChain extends PolicyChain {
  readonly leftOut: LeftOut;
}

/** XT_MULTI_PORTS: a range counts as two. */
const MOST_PORTS = 15;
/** The limit of entries. A set uses memory only for its entries. */
const MAX_ENTRIES = 1_048_576;
/** NFLOG allows 64 bytes, including the final zero. */
const MAX_LOG_PREFIX = 63;

const ALL_ADDRESSES: Readonly<Record<string, readonly Cidr[]>> = {
  "0.0.0.0/0": ["0.0.0.0/1", "128.0.0.0/1"].map(parseCidr),
  "::/0": ["::/1", "8000::/1"].map(parseCidr),
};

const PEER_TYPES: Readonly<Record<PeerSet["kind"], SetType>> = {
  pods: "hash:ip",
  blocks: "hash:net",
  "pod-ports": "hash:ip,port",
};

/** The name of a set of addresses that rules name. */
export function peersName(id: PeerSetId, family: IpFamily): string {
  return `${setPrefix(family)}P-${id}`;
}

/** Whether a set belongs to this data plane, including sets that are about to replace another. */
export function isPolicySet(name: string, family: IpFamily): boolean {
  return new RegExp(`^(NEW-)?${setPrefix(family)}P?-`).test(name);
}

/**
 * Returns the entries that decide which pods are judged. A pod enters last and leaves first, so that
 * every rule for it is there meanwhile. The same holds for the known pods of closed ranges among them;
 * that other pods are known must not wait for the rules, which deny what is not.
 */
export function gateEntries<Entry extends readonly [set: string, entry: string]>(
  entries: readonly Entry[],
  family: IpFamily,
): ReadonlySet<Entry> {
  const gates = new Set(DIRECTIONS.map((each) => isolatedSet(each, family)));
  const moved = new Set(entries.filter(([set]) => gates.has(set)).map(([, entry]) => entry));
  return new Set(
    entries.filter(([set, entry]) =>
      gates.has(set) || set === knownSet(family) && moved.has(entry)
    ),
  );
}

/** Returns the lines of a policy's rule: one for each of its sets and each group of its ports. */
function ruleTexts(
  rule: PolicyRule,
  { direction, plan: { family, peers } }: {
    readonly direction: Direction;
    readonly plan: Pick<PolicyPlan, "family" | "peers">;
  },
): readonly string[] {
  const side = PEER_SIDE[direction];
  const sets = rule.peers?.map((id) => {
    const sides = peers.get(id)?.kind === "pod-ports" ? `${side},dst` : side;
    return [matchSet(peersName(id, family), sides)];
  }) ?? [[]];
  const comment = `${rule.policy} ${direction} ${rule.index}`;
  return sets.flatMap((set) =>
    portMatches(rule.ports).map(({ protocol, extensions = [] }) =>
      ruleText({
        ...(protocol && { protocol }),
        extensions: [...set, ...extensions],
        comment,
        target: ["RETURN"],
      })
    )
  );
}

function portMatches(ports: readonly PortRange[] | undefined): readonly Rule[] {
  if (ports === undefined) return [{}];
  return [...Map.groupBy(ports, ({ protocol }) => protocol)].flatMap(([protocol, ranges]) => {
    if (ranges.some(({ from, to }) => from === 1 && to === 65_535)) return [{ protocol }];
    return portGroups(ranges).map((group): Rule => ({
      protocol,
      extensions: [["multiport", "--dports", group.join()]],
    }));
  });
}

function portGroups(ranges: readonly PortRange[]): readonly (readonly string[])[] {
  const groups: string[][] = [];
  let room = 0;
  for (const { from, to } of ranges) {
    const size = from === to ? 1 : 2;
    if (room < size) {
      groups.push([]);
      room = MOST_PORTS;
    }
    groups.at(-1)!.push(from === to ? `${from}` : `${from}:${to}`);
    room -= size;
  }
  return groups;
}

/** The chain of a list. A part that may be refused is a line, or the name of a set. */
export function listChain(
  id: RuleListId,
  { plan, refused }: { readonly plan: PolicyPlan; readonly refused: RefusedParts },
): ListChain {
  const list = plan.lists.get(id)!;
  const { direction } = list;
  const texts = new Map(list.rules.map((rule) => [rule, ruleTexts(rule, { direction, plan })]));
  const setsOf = ({ peers = [] }: PolicyRule) => peers.map((id) => peersName(id, plan.family));
  const { rules, leftOut } = acceptableRules(list, {
    refused,
    partsOf: (rule) => [...texts.get(rule)!, ...setsOf(rule)],
  });
  const lines = rules.flatMap((rule) => texts.get(rule)!);
  return { name: listChainName(id), rules: [...lines, goTo(DENIED[direction])], leftOut };
}

/** The chains that depend on the pods of this node. */
export function podChains(plan: PolicyPlan): readonly PolicyChain[] {
  const pods = [...plan.pods.values()];
  return DIRECTIONS.flatMap((direction): readonly PolicyChain[] => {
    const denied = pods.filter((pod) => pod[direction]).flatMap((pod) =>
      deniedRules(pod, direction, plan)
    );
    return [
      ...dispatchChains(direction, plan),
      {
        name: DENIED[direction],
        rules: [...denied.sort(), goTo(DENY_COUNTED[direction])],
      },
    ];
  });
}

/**
 * A pod reaches itself. Few packets come here, so these rules cost others nothing; a set of pairs
 * (hash:net,net) is missing in some kernels.
 */
function deniedRules(
  { key, addresses }: PodPlan,
  direction: Direction,
  { deny: { log } }: PolicyPlan,
): readonly string[] {
  const itself = addresses.flatMap((source) =>
    addresses.map((destination): Rule => ({
      source: { value: source },
      destination: { value: destination },
      target: ["RETURN"],
    }))
  );
  const prefix = denyLogPrefix(key, direction).slice(0, MAX_LOG_PREFIX).trim();
  const own = direction === "egress" ? "source" : "destination";
  const other = direction === "egress" ? "destination" : "source";
  const logged = log === undefined ? [] : addresses.map((address): Rule => ({
    [own]: { value: address },
    [other]: { value: address, not: true },
    extensions: [["limit", "--limit", `${log.perMinute}/min`]],
    target: ["NFLOG", "--nflog-group", `${log.group}`, "--nflog-prefix", prefix],
  }));
  return [...itself, ...logged].map(ruleText);
}

/** Every chain. Chains of one kind are sorted by name. */
export function* policyChains(plan: PolicyPlan): Generator<PolicyChain> {
  yield* baseChains(plan);
  yield* podChains(plan);
  for (const id of [...plan.lists.keys()].sort()) {
    yield listChain(id, { plan, refused: new Set() });
  }
}

/** The set of a peer. */
export function peersSet(id: PeerSetId, peers: PeerSet, family: IpFamily): PolicySet {
  const options = createOptions(PEER_TYPES[peers.kind], { family, maxEntries: MAX_ENTRIES });
  return { name: peersName(id, family), options, entries: peerEntries(peers) };
}

/** The entries of a set of peers. */
export function* peerEntries({ kind, members }: PeerSet): Generator<string> {
  if (kind === "blocks") yield* blockEntries(members);
  else for (const member of members.values()) yield memberEntry(member);
}

/**
 * In the kernel, too, the smallest matching block of a set decides. Sets refuse a block of length 0, so
 * it becomes two halves, without those that already are entries.
 */
function* blockEntries(members: NestedBlocks): Generator<string> {
  for (const [block, isIn] of members) {
    const halves = ALL_ADDRESSES[block]?.filter((half) => !members.has(half)) ?? [block];
    for (const each of halves) yield isIn ? entryOfCidr(each) : `${entryOfCidr(each)} nomatch`;
  }
}

/** The entry of an address, or of an address with a port. */
export function memberEntry(member: IpAddress | PodPort): string {
  if (typeof member === "string") return member;
  const { address, protocol, port } = member;
  return `${address},${protocol.toLowerCase()}:${port}`;
}

/** The gates that a pod is in, by name, with its entries. */
export function* podEntries(
  pod: PodPlan,
  { family, closedRanges }: Pick<PolicyPlan, "closedRanges" | "family">,
): Generator<readonly [set: string, entry: string]> {
  for (const address of pod.addresses) {
    for (const direction of DIRECTIONS) {
      if (pod[direction] !== undefined) yield [isolatedSet(direction, family), address];
    }
    if (closedRanges.length > 0) yield [knownSet(family), address];
  }
}

/** The gates, without entries. */
export function gateSets(family: IpFamily): readonly PolicySet[] {
  const options = createOptions("hash:ip", { family, maxEntries: MAX_ENTRIES });
  return [...DIRECTIONS.map((each) => isolatedSet(each, family)), knownSet(family)]
    .map((name) => ({ name, options, entries: [] }));
}

/** Every set, the gates first. */
export function* policySets(plan: PolicyPlan): Generator<PolicySet> {
  const { family, peers, pods } = plan;
  const gates = new Map(gateSets(family).map((set) => [set.name, new Set<string>()]));
  for (const pod of pods.values()) {
    for (const [name, entry] of podEntries(pod, plan)) gates.get(name)?.add(entry);
  }
  for (const set of gateSets(family)) yield { ...set, entries: gates.get(set.name)! };
  for (const id of [...peers.keys()].sort()) yield peersSet(id, peers.get(id)!, family);
}
