/**
 * Whether policies allow a connection, and which of them decide it: the rules of the plan, walked for
 * one connection.
 *
 * @module
 */
import { CidrCover } from "../net/cidr_cover.ts";
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import { BlockMatcher } from "../net/nested_blocks.ts";
import type { Port, Protocol } from "../net/port.ts";
import { RuleBook } from "./allowed_ports.ts";
import type { PeerSource } from "./peer_source.ts";
import {
  type Direction,
  endOf,
  listsFrom,
  mayDeny,
  memberKey,
  type PeerSetId,
  type PodKey,
  type PodPlan,
  podPortKey,
  type PolicyKey,
  type PolicyPlan,
  type PolicyRule,
  type RuleList,
} from "./policy_plan.ts";
import type { PolicyState } from "./policy_state.ts";

/** A connection at its first packet, after its destination was translated. */
export interface Connection {
  readonly from: IpAddress;
  readonly to: IpAddress;
  /** Absent = one without ports, such as an ICMP echo. */
  readonly transport?: { readonly protocol: Protocol; readonly port: Port };
  /** The source is the node of the destination, which always reaches its pods. */
  readonly isFromOwnNode?: boolean;
  /** The destination is the node of the source, which its pods always reach. */
  readonly isToOwnNode?: boolean;
}

/** The verdict of one end of a connection. */
export type EndVerdict =
  /** The end is no pod of the view. Data planes let it pass: another node judges it, or none. */
  | { readonly kind: "unknown" }
  /** The end is no pod yet, but in a range that is closed until it is one. */
  | { readonly kind: "closed" }
  /** No policy decides: none isolates the pod, and no rule of the administrator matches. */
  | { readonly kind: "not-isolated"; readonly pod: PodKey }
  /** A pod to itself, or to or from its own node. */
  | { readonly kind: "always"; readonly pod: PodKey }
  | DecidingRule & { readonly kind: "allowed"; readonly pod: PodKey }
  | {
    readonly kind: "denied";
    readonly pod: PodKey;
    readonly policies: readonly PolicyKey[];
    /** The rule that denies. Absent = the policies isolate the pod, and no rule of them allows it. */
    readonly rule?: DecidingRule;
    /** The policies have so many rules, which is too many: none of them applies. */
    readonly excess?: number;
  };

/** The first rule that matches. */
interface DecidingRule {
  readonly policy: PolicyKey;
  /** Place of the rule in `spec.ingress` or `spec.egress`. */
  readonly index: number;
  /** The name of the rule. */
  readonly name?: string;
  /** Absent = the rule is one of a NetworkPolicy. */
  readonly tier?: "Admin" | "Baseline";
}

/** The verdicts of both ends of a connection. */
export interface Judgement {
  readonly egress: EndVerdict;
  readonly ingress: EndVerdict;
  readonly isAllowed: boolean;
}

/** Pods with their rules, and what their sets hold. */
export interface PolicyView {
  podAt(address: IpAddress): ViewedPod | undefined;
  /** Whether an address that no pod has is cut off. */
  isClosed(address: IpAddress): boolean;
  hasPeer(id: PeerSetId, peer: Pick<Connection, "to" | "transport">): boolean;
}

/** A pod and its lists in the order of their tiers; none = no policy has an effect. */
interface ViewedPod extends Readonly<Record<Direction, readonly RuleList[]>> {
  readonly key: PodKey;
}

/** Judges a connection at both ends. */
export function judgeConnection(view: PolicyView, connection: Connection): Judgement {
  const [source, destination] = [view.podAt(connection.from), view.podAt(connection.to)];
  const isToItself = source !== undefined && source.key === destination?.key;
  const judge = (direction: Direction, pod: ViewedPod | undefined): EndVerdict => {
    const isWithNode = direction === "ingress"
      ? connection.isFromOwnNode === true
      : connection.isToOwnNode === true;
    if (pod === undefined) {
      const address = direction === "ingress" ? connection.to : connection.from;
      return { kind: view.isClosed(address) && !isWithNode ? "closed" : "unknown" };
    }
    const lists = pod[direction];
    const isAlways = (isToItself || isWithNode) && lists.some(mayDeny);
    if (isAlways) return { kind: "always", pod: pod.key };
    for (const { rules, policies, tier, ...list } of lists) {
      const rule = rules.find((each) => matchesRule(view, each, direction, connection));
      const deciding = rule && rule.action !== "pass" && {
        ...{ policy: rule.policy, index: rule.index },
        ...(rule.name !== undefined && { name: rule.name }),
        ...(tier !== "NetworkPolicy" && { tier }),
      };
      if (deciding && rule.action === undefined) {
        return { kind: "allowed", pod: pod.key, ...deciding };
      }
      if (deciding) {
        return { kind: "denied", pod: pod.key, policies: [rule.policy], rule: deciding };
      }
      if (endOf({ tier, ...list }) !== "deny") continue;
      const { excess } = list;
      return { kind: "denied", pod: pod.key, policies, ...(excess && { excess }) };
    }
    return { kind: "not-isolated", pod: pod.key };
  };
  const [egress, ingress] = [judge("egress", source), judge("ingress", destination)];
  return { egress, ingress, isAllowed: isConsent(egress) && isConsent(ingress) };
}

function isConsent({ kind }: EndVerdict): boolean {
  return kind !== "denied" && kind !== "closed";
}

function matchesRule(
  view: PolicyView,
  { peers, ports }: PolicyRule,
  direction: Direction,
  { from, to, transport }: Connection,
): boolean {
  const isPortMatched =
    ports?.some((range) =>
      range.protocol === transport?.protocol && range.from <= transport.port &&
      transport.port <= range.to
    ) ?? true;
  const peer = { to: direction === "ingress" ? from : to, ...(transport && { transport }) };
  return isPortMatched && (peers?.some((id) => view.hasPeer(id, peer)) ?? true);
}

/** Parts of a plan that a view reads. */
export interface ViewedParts extends Pick<PolicyPlan, "lists" | "peers"> {
  readonly podsByAddress: ReadonlyMap<IpAddress, PodPlan>;
  readonly closed: Pick<CidrCover, "contains">;
}

/** Views a plan: local pods only. The view is good until the plan changes. */
export function viewPlan({ pods, lists, peers, closedRanges }: PolicyPlan): PolicyView {
  const podsByAddress = new Map<IpAddress, PodPlan>();
  for (const pod of pods.values()) {
    for (const address of pod.addresses) podsByAddress.set(address, pod);
  }
  const closed = new CidrCover(closedRanges);
  return viewParts({ podsByAddress, lists, peers, closed });
}

/** As {@linkcode viewPlan}, of parts that may change afterwards. */
export function viewParts(
  { podsByAddress, lists, peers, closed }: ViewedParts,
): PolicyView {
  return {
    isClosed: (address) => closed.contains(address),
    podAt(address) {
      const pod = podsByAddress.get(address);
      if (pod === undefined) return undefined;
      const ingress = [...listsFrom(lists, pod.ingress)];
      const egress = [...listsFrom(lists, pod.egress)];
      return { key: pod.key, ingress, egress };
    },
    hasPeer(id, { to, transport }) {
      const set = peers.get(id);
      switch (set?.kind) {
        case "pods":
          return set.members.has(to);
        case "pod-ports":
          return transport !== undefined &&
            set.members.has(podPortKey({ address: to, ...transport }));
        case "blocks":
          return BlockMatcher.of(set.members).contains(to);
        default:
          return false;
      }
    },
  };
}

/** Views the whole cluster: every pod, wherever it runs. The view is good until the state changes. */
export function viewCluster(state: PolicyState, family: IpFamily): PolicyView {
  const sources = new Map<PeerSetId, PeerSource>();
  const book = new RuleBook(state, family);
  return {
    isClosed: () => false,
    podAt(address) {
      const pod = state.ownerOf(address);
      if (pod === undefined) return undefined;
      const listsFor = (direction: Direction) =>
        book.rulesOf(pod, direction).map(({ list, sources: own }) => {
          for (const source of own.values()) sources.set(source.id, source);
          return list;
        });
      return { key: pod.key, ingress: listsFor("ingress"), egress: listsFor("egress") };
    },
    hasPeer(id, { to, transport }) {
      const source = sources.get(id);
      if (source === undefined) return false;
      if (source.kind === "blocks") return BlockMatcher.of(source.members).contains(to);
      if (source.kind === "nodes") return state.isNode(to, source.selector);
      const pod = state.ownerOf(to);
      const wanted = source.kind === "pods"
        ? to
        : transport && podPortKey({ address: to, ...transport });
      return pod !== undefined &&
        book.membersOf(source, pod).some((member) => memberKey(member) === wanted);
    },
  };
}

/** Most policies that a sentence names. */
const MOST_NAMED = 4;

/** Returns the reason why one end allows or denies the connection, without a full stop. */
export function endSentence(direction: Direction, verdict: EndVerdict): string {
  const end = direction === "egress" ? "sender" : "receiver";
  switch (verdict.kind) {
    case "unknown":
      return `the ${end} is no pod, so no NetworkPolicy applies at this end`;
    case "closed":
      return `the ${end} is in the pod range, but is no pod yet: closed until it is one`;
    case "not-isolated":
      return `no NetworkPolicy isolates ${verdict.pod} for ${direction}`;
    case "always":
      return direction === "egress"
        ? `${verdict.pod} always reaches itself and its own node`
        : `${verdict.pod} always accepts itself and its own node`;
    case "allowed":
      if (verdict.tier) return ruleSentence("accepts", direction, verdict.pod, verdict);
      return `NetworkPolicy ${verdict.policy} lets it ${
        direction === "egress" ? "out of" : "into"
      } ` +
        `${verdict.pod}: spec.${direction}[${verdict.index}]`;
    case "denied": {
      if (verdict.rule) return ruleSentence("denies", direction, verdict.pod, verdict.rule);
      const [names, isOne] = [policyNames(verdict.policies), verdict.policies.length === 1];
      if (isOfCluster(verdict.policies[0]!)) {
        return `${names} ${isOne ? "has" : "have"} too many rules for ${verdict.pod}, or for the ` +
          `pods of its namespace on the node (${verdict.excess} for this one): they deny everything`;
      }
      const isolates = `${names} ${isOne ? "isolates" : "isolate"} ${verdict.pod} for ${direction}`;
      return verdict.excess === undefined
        ? `${isolates}, and none of ${isOne ? "its" : "their"} rules allows it`
        : `${isolates}, and allow${isOne ? "s" : ""} nothing: there are too many rules for this ` +
          `pod, or for the pods of its namespace on the node (${verdict.excess} for this one)`;
    }
  }
}

/** What a rule of the administrator does. */
function ruleSentence(
  does: "accepts" | "denies",
  direction: Direction,
  pod: PodKey,
  { policy, index, name, tier }: DecidingRule,
): string {
  const way = direction === "egress" ? "out of" : "into";
  return `ClusterNetworkPolicy ${policy} (tier ${tier}) ${does} it ${way} ${pod}: ` +
    `spec.${direction}[${index}]${name === undefined ? "" : ` ${JSON.stringify(name)}`}`;
}

/**
 * Returns the end that denies the connection and the reason, the sender first; `undefined` = it is
 * allowed.
 */
export function denialSentence(
  { egress, ingress }: Pick<Judgement, "egress" | "ingress">,
): string | undefined {
  const isDenied = ({ kind }: EndVerdict) => kind === "denied" || kind === "closed";
  if (isDenied(egress)) return `at the sender: ${endSentence("egress", egress)}`;
  return isDenied(ingress) ? `at the receiver: ${endSentence("ingress", ingress)}` : undefined;
}

/** Names policies in a sentence, not all of many. */
export function policyNames(policies: readonly PolicyKey[]): string {
  const count = policies.filter(isOfCluster).length;
  const kind = count > 0 ? "ClusterNetworkPolic" : "NetworkPolic";
  if (policies.length === 1) return `${kind}y ${policies[0]}`;
  const shown = policies.slice(0, MOST_NAMED);
  const more = policies.length - shown.length;
  const last = more > 0 ? `${more} more` : shown.pop();
  const plural = count === 0 || count === policies.length ? `${kind}ies` : "policies";
  return `${plural} ${shown.join(", ")} and ${last}`;
}

/** Whether a policy is one of the administrator. */
export function isOfCluster(key: PolicyKey): boolean {
  return !key.includes("/");
}
