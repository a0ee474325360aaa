/**
 * NetworkPolicy as objects of nftables. Pure.
 *
 * ```
 * forward ── egress ──────── from-pod: addr → list-… ── accept ──┐
 *                                              └ goto deny-egress       │
 *         ── ingress ─────── to-pod:   addr → list-… ── accept ──┴→ on
 * output ─── egress-output, ingress-output: the same, for packets that IPVS forwards
 * ```
 *
 * `accept` ends one chain of a hook only, so a packet that the source may send is judged by the
 * destination too. There is no chain in the input hook: traffic between a pod and its own node is
 * always allowed. The node's own packets pass the output hook, where their source is local.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import { rangesOf } from "../../../lib/net/nested_blocks.ts";
import { contentId } from "../../../lib/policy/content_id.ts";
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
import {
  type NftChain,
  type NftContainer,
  type NftElement,
  nftFamily,
  type NftTable,
} from "../../netfilter/nft/nft_objects.ts";
import { denyLogPrefix, DIRECTIONS, type LayoutSettings } from "../policy_data_plane.ts";

/** The table of a family. */
export function policyTable(family: IpFamily): NftTable {
  return { family: nftFamily(family), name: "kube-relay-policy" };
}

const MAPS: Readonly<Record<Direction, string>> = { ingress: "to-pod", egress: "from-pod" };

/** The addresses of a family in the words of nft. */
function words(family: IpFamily) {
  const ip = nftFamily(family);
  const type = family === "IPv4" ? "ipv4_addr" : "ipv6_addr";
  return { source: `${ip} saddr`, destination: `${ip} daddr`, type };
}

/** Sets and maps that are always there. */
export function fixedContainers(family: IpFamily): ReadonlyMap<string, NftContainer> {
  const { type } = words(family);
  return new Map<string, NftContainer>([
    ["to-pod", { kind: "map", declaration: `type ${type} : verdict` }],
    ["from-pod", { kind: "map", declaration: `type ${type} : verdict` }],
    ["itself", { kind: "set", declaration: `type ${type} . ${type}` }],
    ["known", { kind: "set", declaration: `type ${type}` }],
  ]);
}

/** The name of a set of addresses. */
export function peersName(id: PeerSetId): string {
  return `peers-${id}`;
}

/** The declaration of a set of addresses. */
export function peersContainer({ kind }: PeerSet, family: IpFamily): NftContainer {
  const { type } = words(family);
  const declaration = {
    pods: `type ${type}`,
    blocks: `type ${type} ; flags interval`,
    "pod-ports": `type ${type} . inet_proto . inet_service`,
  }[kind];
  return { kind: "set", declaration };
}

/** The keys of a set of addresses. Ranges are spelled as nft prints them. */
export function* peerKeys({ kind, members }: PeerSet): Generator<string> {
  if (kind === "blocks") yield* rangesOf(members);
  else for (const member of members.values()) yield memberKey(member);
}

/** The key of an address, or of an address with a port. */
export function memberKey(member: IpAddress | PodPort): string {
  if (typeof member === "string") return member;
  const { address, protocol, port } = member;
  return `${address} . ${protocol.toLowerCase()} . ${port}`;
}

/** Ports that several ranges make up are a set of their own, which rules with equal ports share. */
export interface PortSet {
  readonly name: string;
  readonly keys: readonly string[];
}

/** The declaration of a {@linkcode PortSet}. */
export const PORT_SET: NftContainer = {
  kind: "set",
  declaration: "type inet_proto . inet_service ; flags interval",
};

/** The set for several ranges; `undefined` = one range is spelled in the rule. */
export function portSetOf({ ports }: PolicyRule): PortSet | undefined {
  if (ports === undefined || ports.length < 2) return undefined;
  const keys = ports.map(({ protocol, from, to }) =>
    `${protocol.toLowerCase()} . ${from === to ? from : `${from}-${to}`}`
  );
  return { name: `ports-${contentId(keys.join())}`, keys };
}

function portMatch(rule: PolicyRule): string {
  const set = portSetOf(rule);
  if (set) return `meta l4proto . th dport @${set.name}`;
  const [range] = rule.ports ?? [];
  return range ? rangeMatch(range) : "";
}

function rangeMatch({ protocol, from, to }: PortRange): string {
  const all = `meta l4proto ${protocol.toLowerCase()}`;
  if (from === 1 && to === 65_535) return all;
  return `${all} th dport ${from === to ? from : `${from}-${to}`}`;
}

/** Returns the lines of a policy's rule: one for each of its sets. */
export function ruleTexts(
  rule: PolicyRule,
  { direction, plan: { family, peers } }: {
    readonly direction: Direction;
    readonly plan: Pick<PolicyPlan, "family" | "peers">;
  },
): readonly string[] {
  const { source, destination } = words(family);
  const address = direction === "ingress" ? source : destination;
  const ports = portMatch(rule);
  const matches = rule.peers?.map((id) => {
    const key = peers.get(id)?.kind === "pod-ports"
      ? `${address} . meta l4proto . th dport`
      : address;
    return `${key} @${peersName(id)}`;
  });
  return (matches ?? [""]).map((peer) =>
    [peer, ports, "accept"].filter((part) => part !== "").join(" ")
  );
}

/** The name of the chain of a list. */
export function listChain(id: RuleListId): string {
  return `list-${id}`;
}

/** The chain that counts what is denied in a direction, and denies it. */
export function denyChain(direction: Direction): string {
  return `deny-${direction}`;
}

/** The last rule of a list. Where denied packets are logged, the chain of the pod denies. */
export function listEnd({ deny }: LayoutSettings, direction: Direction): readonly string[] {
  return deny.log ? [] : [`goto ${denyChain(direction)}`];
}

/** The chains that only this pod has: none, unless denied packets are logged with its name. */
export function podChains(pod: PodPlan, { deny }: LayoutSettings): readonly NftChain[] {
  const { log } = deny;
  if (log === undefined) return [];
  return DIRECTIONS.flatMap((direction) => {
    const list = pod[direction];
    if (list === undefined) return [];
    const prefix = denyLogPrefix(pod.key, direction);
    return [{
      name: podChain(pod, direction),
      rules: [
        `jump ${listChain(list)}`,
        `limit rate ${log.perMinute}/minute log prefix "${prefix}" group ${log.group}`,
        `goto ${denyChain(direction)}`,
      ],
    }];
  });
}

function podChain({ key }: PodPlan, direction: Direction): string {
  return `${MAPS[direction]}-${contentId(key)}`;
}

/** The elements of a pod. */
export function podElements(pod: PodPlan, settings: LayoutSettings): readonly NftElement[] {
  const { deny, closedRanges } = settings;
  const { addresses } = pod;
  const found: NftElement[] = [];
  for (const direction of DIRECTIONS) {
    const list = pod[direction];
    if (list === undefined) continue;
    const chain = deny.log ? podChain(pod, direction) : listChain(list);
    const value = `goto ${chain}`;
    found.push(...addresses.map((key) => ({ container: MAPS[direction], key, value })));
  }
  if (found.length > 0) {
    const pairs = addresses.flatMap((from) => addresses.map((to) => `${from} . ${to}`));
    found.push(...pairs.map((key) => ({ container: "itself", key })));
  }
  if (closedRanges.length > 0) {
    found.push(...addresses.map((key) => ({ container: "known", key })));
  }
  return found;
}

/** Chains with a hook, and the one that denies. */
export function baseChains(settings: LayoutSettings): readonly NftChain[] {
  const { family, deny } = settings;
  const chains = DIRECTIONS.flatMap((direction) => {
    const rules = judgingRules(direction, settings);
    const links = linkRules(settings, direction);
    const priority = direction === "egress" ? -1 : 0;
    return ["forward", "output"].map((hook): NftChain => ({
      name: hook === "forward" ? direction : `${direction}-output`,
      hook: `type filter hook ${hook} priority ${priority}`,
      // Packets that IPVS forwards leave by the output hook with the source of their sender.
      rules: hook === "forward"
        ? rules.toSpliced(-1, 0, ...links)
        : rules.toSpliced(1, 0, "fib saddr type local accept"),
    }));
  });
  const deniedRules = deny.action === "reject" ? rejectRules(settings) : ["drop"];
  const shared = DIRECTIONS.filter((direction) => linkRules(settings, direction).length > 0);
  return [
    ...chains,
    ...shared.map((direction) => sharedLinkChain(family, direction)),
    ...DIRECTIONS.map((each) => ({ name: denyChain(each), rules: ["counter goto deny"] })),
    { name: "deny", rules: deniedRules },
  ];
}

function rejectRules({ family, sharedLinks: { ingress, egress } }: LayoutSettings) {
  const icmp = family === "IPv4" ? "icmp" : "icmpv6";
  return [
    // A late segment of an allowed connection: a reset would end that connection.
    "ct state invalid drop",
    // A reset for a packet between ports of a bridge bears the translated address, which the client
    // does not know. An ICMP error quotes the packet, and the kernel translates the quotation. Only a
    // client that waits for its first answer takes it for a refusal, some of them at their next attempt.
    ...[...new Set([...ingress, ...egress])].map((link) =>
      `iifname "${link}" oifname "${link}" meta l4proto tcp ct status dnat ` +
      `tcp flags & (fin|syn|rst|ack) == syn reject with ${icmp} type port-unreachable`
    ),
    "meta l4proto tcp reject with tcp reset",
    `reject with ${icmp} type admin-prohibited`,
  ];
}

/** Packets on a link of pods whose pod no address tells: a bridge hands them to all or any of its ports. */
function linkRules(
  { family, sharedLinks }: LayoutSettings,
  direction: Direction,
): readonly string[] {
  const matches = {
    ingress: {
      IPv4: ["ip daddr 224.0.0.0/4", "fib daddr type broadcast"],
      IPv6: ["ip6 daddr ff00::/8", "ip6 daddr fe80::/10"],
    },
    egress: { IPv4: [], IPv6: ["ip6 saddr fe80::/10"] },
  };
  const side = direction === "ingress" ? "oifname" : "iifname";
  return sharedLinks[direction].flatMap((link) =>
    matches[direction][family].map((match) =>
      `${side} "${link}" ${match} goto shared-link-${direction}`
    )
  );
}

/** Addresses are assigned and groups are joined by such packets, also by those of isolated pods. */
function sharedLinkChain(family: IpFamily, direction: Direction): NftChain {
  const rules = family === "IPv4" ? ["udp sport 67-68 udp dport 67-68 accept"] : [
    "icmpv6 type 130-132 ip6 hoplimit 1 accept",
    "icmpv6 type 143 ip6 hoplimit 1 accept",
    "udp sport 546-547 udp dport 546-547 accept",
  ];
  const name = `shared-link-${direction}`;
  return { name, rules: [...rules, `goto ${denyChain(direction)}`] };
}

/**
 * A bridge hands neighbour discovery between two pods to the forward hook. Nothing that was routed has
 * 255 hops left, so this opens no path to other nodes.
 */
const NEIGHBOUR_DISCOVERY = "icmpv6 type 133-136 ip6 hoplimit 255 accept";

function judgingRules(
  direction: Direction,
  { family, closedRanges }: LayoutSettings,
): readonly string[] {
  const { source, destination } = words(family);
  const own = direction === "ingress" ? destination : source;
  return [
    "ct state established,related accept",
    ...(family === "IPv6" ? [NEIGHBOUR_DISCOVERY] : []),
    `${source} . ${destination} @itself accept`,
    ...closedRanges.map((range) => `${own} ${range} ${own} != @known goto ${denyChain(direction)}`),
    `${own} vmap @${MAPS[direction]}`,
  ];
}
