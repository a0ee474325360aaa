/**
 * Policies as objects of nftables. Pure.
 *
 * ```
 * forward ── egress ──────── from-pod: addr → list-… ── accept ───┐
 *                                              └ goto deny-egress │
 *         ── ingress ─────── to-pod:   addr → list-… ── accept ───┴→ on
 * output ─── egress-output, ingress-output: the same, for packets that IPVS forwards
 * ```
 *
 * A list of one tier ends with a goto to that of the next one. `accept` ends one chain of a hook only, so a packet that the source may send is judged by the
 * destination too. There is no chain in the input hook: traffic between a pod and its own node is
 * always allowed. The node's own packets pass the output hook, where their source is local.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import { rangesOf } from "../../../lib/net/nested_blocks.ts";
import type { KernelObject } from "../../../lib/engine/reconciler.ts";
import { contentId } from "../../../lib/policy/content_id.ts";
import {
  type Direction,
  endOf,
  type PeerSetId,
  type PodPlan,
  type PodPort,
  type PolicyPlan,
  type PolicyRule,
  type PortRange,
  type RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import {
  type NftChain,
  type NftContainer,
  nftFamily,
  type NftTableSpec,
} from "../../netfilter/nft/nft_objects.ts";
import { chainObject, containerObjects, nftTransaction } from "../../netfilter/nft/nft_table.ts";
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

/** The table of a family, with the sets and maps that are always there. */
export function policyTable(family: IpFamily): NftTableSpec {
  const { type } = words(family);
  return {
    family: nftFamily(family),
    name: "kube-relay-policy",
    containers: new Map<string, NftContainer>([
      ["to-pod", { kind: "map", declaration: `type ${type} : verdict` }],
      ["from-pod", { kind: "map", declaration: `type ${type} : verdict` }],
      ["itself", { kind: "set", declaration: `type ${type} . ${type}` }],
      ["known", { kind: "set", declaration: `type ${type}` }],
    ]),
  };
}

/** Returns the whole table of a plan, as input for `nft -f`. */
export function renderPolicies(plan: PolicyPlan): readonly string[] {
  return nftTransaction(policyTable(plan.family), policyObjects(NFT_LAYOUT, plan)).text();
}

/** How nft spells policies. */
export const NFT_LAYOUT: PolicyLayout = {
  base(settings) {
    const containers = containerObjects(policyTable(settings.family));
    return [...containers, ...baseChains(settings).map(chainObject)];
  },
  list: listObjects,
  pod: podObjects,
  peers(id, { kind }, { family }) {
    const { type } = words(family);
    const declaration = {
      pods: `type ${type}`,
      blocks: `type ${type} ; flags interval`,
      "pod-ports": `type ${type} . inet_proto . inet_service`,
    }[kind];
    return { kind: "set", name: peersName(id), text: declaration };
  },
  /** Ranges are spelled as nft prints them. */
  *members({ kind, members }) {
    if (kind === "blocks") { for (const range of rangesOf(members)) yield [range, ""]; }
    else for (const member of members.values()) yield [memberKey(member), ""];
  },
  memberKey,
};

function peersName(id: PeerSetId): string {
  return `peers-${id}`;
}

function memberKey(member: IpAddress | PodPort): string {
  if (typeof member === "string") return member;
  const { address, protocol, port } = member;
  return `${address} . ${protocol.toLowerCase()} . ${port}`;
}

/** The declaration of a set of ports. */
const PORT_SET = "type inet_proto . inet_service ; flags interval";

/** Ports that several ranges make up are a set of their own, which rules with equal ports share. */
function portSetOf(
  { ports }: PolicyRule,
): { readonly name: string; readonly keys: readonly string[] } | undefined {
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

/** Returns the lines of a policy's rule: one for each of its sets. `verdict`: what becomes of the packet. */
function ruleTexts(
  rule: PolicyRule,
  direction: Direction,
  verdict: string,
  { family, peers }: Pick<PolicyPlan, "family" | "peers">,
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
    [peer, ports, verdict].filter((part) => part !== "").join(" ")
  );
}

function listChain(id: RuleListId): string {
  return `list-${id}`;
}

function listObjects(id: RuleListId, plan: PolicyPlan, refused: ReadonlySet<Part>): ListObjects {
  const list = plan.lists.get(id)!;
  const { direction } = list;
  // Where denied packets are logged, the chain of the pod denies what returns to it.
  const deny = plan.deny.log ? "return" : `goto ${denyChain(direction)}`;
  const last = endOf(list);
  const end = last === "allow" ? "accept" : last === "deny" ? deny : `goto ${listChain(last.next)}`;
  const verdicts = { accept: "accept", deny, pass: end };
  const spell = (rule: PolicyRule) =>
    ruleTexts(rule, direction, verdicts[rule.action ?? "accept"], plan);
  const { rules, leftOut } = acceptableRules(list.rules, refused, (rule) => [
    ...spell(rule),
    ...(rule.peers ?? []).map(peersName),
    portSetOf(rule)?.name ?? "",
  ]);
  const texts = [...new Set(rules.flatMap(spell))];
  // A chain returns by itself.
  if (end !== "return") texts.push(end);
  const objects: KernelObject[] = [chainObject({ name: listChain(id), rules: texts })];
  const portSets = new Map(
    rules.flatMap((rule) => portSetOf(rule) ?? []).map((set) => [set.name, set]),
  );
  for (const { name, keys } of portSets.values()) {
    objects.push({ kind: "set", name, text: PORT_SET, isShared: true });
    for (const key of keys) objects.push({ kind: name, name: key, text: "", isShared: true });
  }
  return { objects, leftOut };
}

/** Only where denied packets are logged with its name does a pod have chains of its own. */
function* podObjects(
  pod: PodPlan,
  { deny, closedRanges }: LayoutSettings,
): Generator<KernelObject> {
  const { addresses } = pod;
  const { log } = deny;
  for (const direction of DIRECTIONS) {
    const list = pod[direction];
    if (list === undefined) continue;
    const chain = log ? `${MAPS[direction]}-${contentId(pod.key)}` : listChain(list);
    if (log) {
      const prefix = denyLogPrefix(pod.key, direction);
      const rules = [
        `jump ${listChain(list)}`,
        `limit rate ${log.perMinute}/minute log prefix "${prefix}" group ${log.group}`,
        `goto ${denyChain(direction)}`,
      ];
      yield chainObject({ name: chain, rules });
    }
    for (const name of addresses) yield { kind: MAPS[direction], name, text: `goto ${chain}` };
  }
  for (const from of pod.egress ?? pod.ingress ? addresses : []) {
    for (const to of addresses) yield { kind: "itself", name: `${from} . ${to}`, text: "" };
  }
  for (const name of closedRanges.length > 0 ? addresses : []) {
    yield { kind: "known", name, text: "" };
  }
}

/** The maps from the address of a pod to its chain. */
const MAPS: Readonly<Record<Direction, string>> = { ingress: "to-pod", egress: "from-pod" };

/** Returns the words of nft for the addresses of a family. */
function words(
  family: IpFamily,
): Readonly<Record<"destination" | "source" | "type", string>> {
  const ip = nftFamily(family);
  const type = family === "IPv4" ? "ipv4_addr" : "ipv6_addr";
  return { source: `${ip} saddr`, destination: `${ip} daddr`, type };
}

/** The chain that counts what is denied in a direction, and denies it. */
export function denyChain(direction: Direction): string {
  return `deny-${direction}`;
}

/** The chains with a hook, and the chains that deny. */
function baseChains(settings: LayoutSettings): readonly NftChain[] {
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

/** Returns the rules for packets on a link of pods that no address of a pod identifies. */
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

/**
 * Accepts the packets by which pods ask for routers, get addresses and join groups. It denies router
 * advertisements: they come from the node, which is no port of its own bridge. By one of them, a pod
 * gives another pod a second address, which no object of the API names and no rule judges.
 */
function sharedLinkChain(family: IpFamily, direction: Direction): NftChain {
  const rules = family === "IPv4" ? ["udp sport 67-68 udp dport 67-68 accept"] : [
    "icmpv6 type 133 ip6 hoplimit 255 accept",
    "icmpv6 type 130-132 ip6 hoplimit 1 accept",
    "icmpv6 type 143 ip6 hoplimit 1 accept",
    "udp sport 546-547 udp dport 546-547 accept",
  ];
  const name = `shared-link-${direction}`;
  return { name, rules: [...rules, `goto ${denyChain(direction)}`] };
}

/**
 * Neighbour solicitations and advertisements between two pods of a bridge pass the forward hook. A
 * routed packet has fewer than 255 hops left, so this opens no path to other nodes.
 */
const NEIGHBOUR_DISCOVERY = "icmpv6 type 135-136 ip6 hoplimit 255 accept";

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
