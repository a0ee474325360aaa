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
import type { KernelObject } from "../../../lib/engine/reconciler.ts";
import { contentId } from "../../../lib/policy/content_id.ts";
import type {
  Direction,
  PeerSetId,
  PodPlan,
  PodPort,
  PolicyPlan,
  PolicyRule,
  PortRange,
  RuleListId,
} from "../../../lib/policy/policy_plan.ts";
import {
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
import { baseChains, denyChain, MAPS, words } from "./base_chains.ts";

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

/** Returns the lines of a policy's rule: one for each of its sets. */
function ruleTexts(
  rule: PolicyRule,
  direction: Direction,
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
    [peer, ports, "accept"].filter((part) => part !== "").join(" ")
  );
}

function listChain(id: RuleListId): string {
  return `list-${id}`;
}

function listObjects(id: RuleListId, plan: PolicyPlan, refused: ReadonlySet<Part>): ListObjects {
  const list = plan.lists.get(id)!;
  const { direction } = list;
  const spell = (rule: PolicyRule) => ruleTexts(rule, direction, plan);
  const { rules, leftOut } = acceptableRules(list.rules, refused, (rule) => [
    ...spell(rule),
    ...(rule.peers ?? []).map(peersName),
    portSetOf(rule)?.name ?? "",
  ]);
  // Where denied packets are logged, the chain of the pod denies.
  const end = plan.deny.log ? [] : [`goto ${denyChain(direction)}`];
  const texts = [...new Set(rules.flatMap(spell))];
  const objects: KernelObject[] = [
    chainObject({ name: listChain(id), rules: [...texts, ...end] }),
  ];
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
