/**
 * Policies as chains of iptables and sets of ipset. Pure.
 *
 * @module
 */
import type { KernelObject } from "../../../lib/engine/reconciler.ts";
import { type Cidr, hostCidr, parseCidr } from "../../../lib/net/cidr.ts";
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import type { NestedBlocks } from "../../../lib/net/nested_blocks.ts";
import {
  type Direction,
  endOf,
  type PeerSet,
  type PeerSetId,
  type PodPlan,
  type PodPort,
  type PolicyPlan,
  type PolicyRule,
  type PortRange,
  type RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import {
  addLine,
  createLine,
  createOptions,
  entryKey,
  entryOfCidr,
  type SetType,
} from "../../netfilter/ipset/ipset_text.ts";
import {
  restoreLines,
  type Rule,
  ruleLines,
  ruleText,
} from "../../netfilter/iptables/iptables_objects.ts";
import { normalRule } from "../../netfilter/iptables/rule_normal_form.ts";
import {
  acceptableRules,
  denyLogPrefix,
  DIRECTIONS,
  type LayoutSettings,
  type ListObjects,
  type Part,
  type PolicyLayout,
  policyObjects,
} from "../policy_target.ts";
import {
  BASE_JUMPS,
  baseChains,
  DENIED,
  dispatchChain,
  isolatedSet,
  knownSet,
  listChainName,
  matchSet,
  PEER_SIDE,
  POD_CHAINS,
  setPrefix,
} from "./base_chains.ts";

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

/** The rules and sets of a plan. Sets are sorted, and the rules of pods are sorted by the pod. */
export interface PolicyTexts {
  readonly chains: ReadonlyMap<string, readonly string[]>;
  readonly sets: ReadonlyMap<string, { readonly options: string; readonly entries: string[] }>;
}

/** Returns everything that a plan writes. */
export function policyTexts(plan: PolicyPlan): PolicyTexts {
  const chains = new Map<string, string[]>();
  const sets = new Map<string, { readonly options: string; readonly entries: string[] }>();
  for (const { kind, name, text } of policyObjects(IPTABLES_LAYOUT, plan)) {
    if (kind === "chain") chains.set(name, [...ruleLines(text)]);
    else if (kind === "set") sets.set(name, { options: text, entries: [] });
    else if (POD_CHAINS.has(kind)) chains.get(kind)!.splice(-1, 0, text);
    else sets.get(kind)?.entries.push(entryOf(name, text));
  }
  return { chains, sets };
}

/** Renders all sets, then all chains. */
export function* renderPolicies(plan: PolicyPlan): Generator<string> {
  const { chains, sets } = policyTexts(plan);
  for (const [name, { options, entries }] of sets) {
    yield `${createLine(name, options)}\n`;
    for (const entry of entries.sort()) yield `${addLine(name, entry)}\n`;
  }
  const written = Array.from(chains, ([name, rules]) => ({ name, rules }));
  for (const line of restoreLines([{ table: "filter", chains: written, jumps: BASE_JUMPS }])) {
    yield `${line}\n`;
  }
}

/** How iptables and ipset spell policies. */
export const IPTABLES_LAYOUT: PolicyLayout = {
  base(settings) {
    const { family } = settings;
    const options = createOptions("hash:ip", { family, maxEntries: MAX_ENTRIES });
    const gates = [...DIRECTIONS.map((each) => isolatedSet(each, family)), knownSet(family)];
    return [
      ...gates.map((name) => ({ kind: "set", name, text: options })),
      ...baseChains(settings).map(({ name, rules }) => chainObject(name, rules)),
      ...Array.from(POD_CHAINS, ([name, last]) => chainObject(name, [last])),
      ...BASE_JUMPS.map(({ from, rule }) => ({ kind: "jump", name: from, text: rule })),
    ];
  },
  list: listObjects,
  pod: podObjects,
  peers(id, { kind }, { family }) {
    const options = createOptions(PEER_TYPES[kind], { family, maxEntries: MAX_ENTRIES });
    return { kind: "set", name: peersName(id, family), text: options };
  },
  *members({ kind, members }) {
    if (kind === "blocks") { for (const entry of blockEntries(members)) yield memberOf(entry); }
    else for (const member of members.values()) yield [memberEntry(member), ""];
  },
  memberKey: memberEntry,
};

function chainObject(name: string, rules: readonly string[]): KernelObject {
  return { kind: "chain", name, text: rules.join("\n") };
}

/** An entry without its option, and that. */
export function memberOf(entry: string): readonly [key: string, text: string] {
  const key = entryKey(entry);
  return [key, entry.slice(key.length).trim()];
}

/** An entry with its option. */
export function entryOf(key: string, option = ""): string {
  return option === "" ? key : `${key} ${option}`;
}

/** The name of a set of addresses that rules name. */
function peersName(id: PeerSetId, family: IpFamily): string {
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
  direction: Direction,
  verdict: Pick<Rule, "isGoto" | "target">,
  { family, peers }: Pick<PolicyPlan, "family" | "peers">,
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
        ...verdict,
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

/** A part that may be refused is a line, or the name of a set. */
function listObjects(id: RuleListId, plan: PolicyPlan, refused: ReadonlySet<Part>): ListObjects {
  const list = plan.lists.get(id)!;
  const { direction } = list;
  const accept = { target: ["RETURN"] };
  const deny = { target: [DENIED[direction]], isGoto: true } as const;
  const last = endOf(list);
  const pass = last === "allow"
    ? accept
    : last === "deny"
    ? deny
    : { target: [listChainName(last.next)], isGoto: true } as const;
  const verdicts = { accept, deny, pass };
  const spell = (rule: PolicyRule) =>
    ruleTexts(rule, direction, verdicts[rule.action ?? "accept"], plan);
  const { rules, leftOut } = acceptableRules(list.rules, refused, (rule) => [
    ...spell(rule),
    ...(rule.peers ?? []).map((peer) => peersName(peer, plan.family)),
  ]);
  const lines = [...rules.flatMap(spell), ruleText(pass)];
  return { objects: [chainObject(listChainName(id), lines)], leftOut };
}

/** The gates that a pod is in, and the rules that lead to its lists, or belong to it alone. */
function* podObjects(
  { key, addresses, ...lists }: PodPlan,
  { family, closedRanges, deny: { log } }: LayoutSettings,
): Generator<KernelObject> {
  const inChain = (kind: string, rule: Rule): KernelObject => {
    const text = ruleText(rule);
    return { kind, name: normalRule(text), text };
  };
  for (const direction of DIRECTIONS) {
    const list = lists[direction];
    if (list === undefined) continue;
    const [own, other] = direction === "egress"
      ? ["source", "destination"] as const
      : ["destination", "source"] as const;
    for (const address of addresses) {
      yield { kind: isolatedSet(direction, family), name: address, text: "" };
      yield inChain(dispatchChain(direction, address), {
        [own]: { value: hostCidr(address) },
        target: [listChainName(list)],
        isGoto: true,
      });
      // A pod reaches itself. Few packets come here, so these rules cost others nothing; a set of pairs
      // (hash:net,net) is missing in some kernels.
      for (const peer of addresses) {
        yield inChain(DENIED[direction], {
          [own]: { value: address },
          [other]: { value: peer },
          target: ["RETURN"],
        });
      }
      if (log === undefined) continue;
      const prefix = denyLogPrefix(key, direction).slice(0, MAX_LOG_PREFIX).trim();
      yield inChain(DENIED[direction], {
        [own]: { value: address },
        [other]: { value: address, not: true },
        extensions: [["limit", "--limit", `${log.perMinute}/min`]],
        target: ["NFLOG", "--nflog-group", `${log.group}`, "--nflog-prefix", prefix],
      });
    }
  }
  for (const name of closedRanges.length > 0 ? addresses : []) {
    yield { kind: knownSet(family), name, text: "" };
  }
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
function memberEntry(member: IpAddress | PodPort): string {
  if (typeof member === "string") return member;
  const { address, protocol, port } = member;
  return `${address},${protocol.toLowerCase()}:${port}`;
}
