/**
 * The effect of policies on one node, in one IP family: for each local pod, ordered rules that decide
 * which connections are allowed. A data plane only translates it. Pure.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { NestedBlocks } from "../net/nested_blocks.ts";
import type { Port, Protocol } from "../net/port.ts";

/** A pod: `namespace/name`. */
export type PodKey = string & { readonly __brand: "PodKey" };

/** A NetworkPolicy: `namespace/name`, or a ClusterNetworkPolicy: its name, which has no slash. */
export type PolicyKey = string & { readonly __brand: "PolicyKey" };

/** Identifies a {@linkcode PeerSet} by what it selects; safe in names of sets. */
export type PeerSetId = string & { readonly __brand: "PeerSetId" };

/** Identifies a {@linkcode RuleList} by its rules; safe in names of chains. */
export type RuleListId = string & { readonly __brand: "RuleListId" };

/** Traffic to a pod, or from it. */
export type Direction = "ingress" | "egress";

/**
 * Where policies stand in the order of a decision: those of the administrator that come first, then
 * NetworkPolicies, then those of the administrator for pods that no NetworkPolicy isolates.
 */
export type Tier = "Admin" | "NetworkPolicy" | "Baseline";

/** Ports of one protocol, both ends included. */
export interface PortRange {
  readonly protocol: Protocol;
  readonly from: Port;
  readonly to: Port;
}

/** An address and port of a pod that a named port of an egress rule stands for. */
export interface PodPort {
  readonly address: IpAddress;
  readonly protocol: Protocol;
  readonly port: Port;
}

/**
 * Addresses that rules name. Policies and rules that select the same have the same set. Members are
 * unique.
 */
export type PeerSet =
  /** Addresses of pods, in `pod-ports` each with the port that a name stands for; by `memberKey()`. */
  | {
    readonly kind: "pods" | "pod-ports";
    readonly members: ReadonlyMap<string, PeerMember>;
  }
  /** The blocks of `ipBlock`s and their exceptions. Never changes: other blocks are another set. */
  | { readonly kind: "blocks"; readonly members: NestedBlocks };

/** What identifies a rule in its policy, and what becomes of packets that it matches. */
export interface RuleHead {
  /** The place of the rule in `spec.ingress` or `spec.egress`, from 0. */
  readonly index: number;
  /** The name that a ClusterNetworkPolicy gives the rule. */
  readonly name?: string;
  /** `pass`: the tier of the list does not decide. Absent = the packet is allowed. */
  readonly action?: "deny" | "pass";
}

/** An entry of a rule list. The first one that matches a packet counts. */
export interface PolicyRule extends RuleHead {
  readonly policy: PolicyKey;
  /** The other end of the connection: any of these sets. Absent = anyone. Never empty. */
  readonly peers?: readonly PeerSetId[];
  /**
   * Absent = every port of every protocol, and what has no ports; a set of `pod-ports` names its ports
   * itself, and only rules without ports have one. Never empty; sorted and disjoint.
   */
  readonly ports?: readonly PortRange[];
}

/** The rules of one tier for the traffic to or from every pod that has this list. */
export interface RuleList {
  readonly direction: Direction;
  readonly tier: Tier;
  /**
   * Every policy of the tier with an effect on these pods, in the order in which they count; some may
   * have no rule in the list.
   */
  readonly policies: readonly PolicyKey[];
  /** In the order of policies and of their rules. */
  readonly rules: readonly PolicyRule[];
  /**
   * The list of the tier that decides next, where this one does not; absent = see {@linkcode endOf}.
   */
  readonly next?: RuleListId;
  /** The list would have so many rules, which is too many: it has none, and denies everything. */
  readonly excess?: number;
}

/**
 * What becomes of a packet that no rule of a list decides. NetworkPolicies isolate: they deny it. Other
 * tiers leave it to the next list, or allow it.
 */
export function endOf(
  { tier, next, excess }: Pick<RuleList, "excess" | "next" | "tier">,
): "allow" | "deny" | { next: RuleListId } {
  if (tier === "NetworkPolicy" || excess !== undefined) return "deny";
  return next === undefined ? "allow" : { next };
}

/** Whether a list may deny packets by itself. */
export function mayDeny(list: RuleList): boolean {
  return endOf(list) === "deny" || list.rules.some(({ action }) => action === "deny");
}

/** The list of a pod, and those of the following tiers. */
export function* listsFrom(
  lists: ReadonlyMap<RuleListId, RuleList>,
  first: RuleListId | undefined,
): Generator<RuleList, void, void> {
  for (let id = first; id !== undefined;) {
    const list = lists.get(id);
    if (list === undefined) return;
    yield list;
    id = list.next;
  }
}

/** A pod of this node, or of another one where a plan includes those. */
export interface PodPlan {
  readonly key: PodKey;
  /** The addresses of this IP family, sorted. Never empty. No other pod of the plan has any of them. */
  readonly addresses: readonly IpAddress[];
  /** The list of its first tier. Absent = no policy has an effect in that direction. */
  readonly ingress?: RuleListId;
  readonly egress?: RuleListId;
  /** Present if it is a pod of another node. */
  readonly isRemote?: true;
}

/** The treatment of denied packets. */
export interface DenySettings {
  /** `reject`: a TCP reset, or an ICMP error "administratively prohibited". */
  readonly action: "reject" | "drop";
  /** Denied packets are logged with the pod's name, at most so many a minute and pod. Absent = not at all. */
  readonly log?: { readonly perMinute: number; readonly group: number };
}

/** The desired state of one IP family. */
export interface PolicyPlan {
  readonly family: IpFamily;
  readonly deny: DenySettings;
  /** All local pods with an address in this family. Pods of the host's network are not in it. */
  readonly pods: ReadonlyMap<PodKey, PodPlan>;
  /** The lists that some pod has, and those that follow them. */
  readonly lists: ReadonlyMap<RuleListId, RuleList>;
  /** The sets that some list names. */
  readonly peers: ReadonlyMap<PeerSetId, PeerSet>;
  /**
   * Ranges in which an address that no pod in {@linkcode pods} has is cut off from all but the node:
   * the node's pod ranges with `--network-policy-start=closed`, else none.
   */
  readonly closedRanges: readonly Cidr[];
  /**
   * Interfaces behind which pods of this node share a link, by the direction in which one of these pods
   * is isolated, in either family. There, packets that no address of a pod identifies are denied: those to
   * broadcast and multicast addresses, and those of link-local addresses.
   */
  readonly sharedLinks: SharedLinks;
  /** Whether the next plan is being made, or is made: the maps above change with it. @default {false} */
  readonly isStale?: boolean;
}

/** The names of the interfaces; empty if no local pod is isolated in that direction. */
export type SharedLinks = Readonly<Record<Direction, readonly string[]>>;

/** A member of a set of pods. */
export type PeerMember = IpAddress | PodPort;

/** The members that a set gained and lost. */
export interface PeerSetChange {
  readonly added: readonly PeerMember[];
  readonly removed: readonly PeerMember[];
}

/** The differences from the last synced plan. The cost depends on the changes, not on the cluster. */
export interface PolicyPlanChanges {
  /** Whether any part of the plan may have changed, besides the named ones; also true for the first plan. */
  readonly full: boolean;
  /** Pods that came, went, or have other addresses or lists. */
  readonly pods: ReadonlySet<PodKey>;
  /** Lists that came or went; one that went and came again may be among them. */
  readonly lists: ReadonlySet<RuleListId>;
  /** Sets that came or went; one that went and came again is among them, with any members. */
  readonly peers: ReadonlySet<PeerSetId>;
  /** Sets that stay and have other members. */
  readonly members: ReadonlyMap<PeerSetId, PeerSetChange>;
}

/** Identifies a member in its set. */
export function memberKey(member: PeerMember): string {
  return typeof member === "string" ? member : podPortKey(member);
}

/** The key of a {@linkcode PodPort} in its set, e.g. `10.1.2.3,TCP,80`. */
export function podPortKey({ address, protocol, port }: PodPort): string {
  return `${address},${protocol},${port}`;
}

/** The contents of a data plane. */
export interface PolicyInspection {
  /** The location of the rules, as text for users. */
  readonly summary: string;
  /** Pods that NetworkPolicies isolate. */
  readonly isolated: Readonly<Record<Direction, number>>;
  /** Isolated pods whose policies allow nothing, because they have too many rules. */
  readonly refused: number;
  readonly lists: number;
  readonly sets: number;
  readonly members: number;
}

/**
 * The packets that rules denied, by direction; a direction that cannot be read is absent. A sync that
 * writes all rules may set them to 0.
 */
export type DeniedPackets = Partial<Readonly<Record<Direction, number>>>;

/** Counts the pods, lists and sets of a plan. */
export function inspectPolicyPlan(plan: PolicyPlan, summary: string): PolicyInspection {
  const pods = [...plan.pods.values()];
  const sets = [...plan.peers.values()];
  const some = (id: RuleListId | undefined, is: (list: RuleList) => boolean) =>
    listsFrom(plan.lists, id).some(is);
  const isolates = ({ tier }: RuleList) => tier === "NetworkPolicy";
  const isExcess = ({ excess }: RuleList) => excess !== undefined;
  return {
    summary,
    isolated: {
      ingress: pods.filter(({ ingress }) => some(ingress, isolates)).length,
      egress: pods.filter(({ egress }) => some(egress, isolates)).length,
    },
    refused: pods.filter(({ ingress, egress }) => some(ingress, isExcess) || some(egress, isExcess))
      .length,
    lists: plan.lists.size,
    sets: sets.length,
    members: sets.reduce((sum, { members }) => sum + members.size, 0),
  };
}
