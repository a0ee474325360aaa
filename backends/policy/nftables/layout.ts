/**
 * NetworkPolicy as objects of nftables. Pure.
 *
 * ```
 * forward ── egress ──────── from-pod: addr → list-… ── accept ───┐
 *                                              └ goto deny-egress │
 *         ── ingress ─────── to-pod:   addr → list-… ── accept ───┴→ on
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
import { denyChain, MAPS, words } from "./base_chains.ts";
import { denyLogPrefix, DIRECTIONS, type LayoutSettings } from "../policy_data_plane.ts";

/** The table of a family. */
export function policyTable(family: IpFamily): NftTable {
  return { family: nftFamily(family), name: "kube-relay-policy" };
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
