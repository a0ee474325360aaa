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
  | { readonly kind: "not-isolated"; readonly pod: PodKey }
  /** A pod to itself, or to or from its own node. */
  | { readonly kind: "always"; readonly pod: PodKey }
  | {
    readonly kind: "allowed";
    readonly pod: PodKey;
    readonly policy: PolicyKey;
    /** Place of the rule in `spec.ingress` or `spec.egress`. */
    readonly index: number;
  }
  | {
    readonly kind: "denied";
    readonly pod: PodKey;
    readonly policies: readonly PolicyKey[];
    /** The policies have so many rules, which is too many: none of them applies. */
    readonly excess?: number;
  };

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

/** A pod and the lists it has; absent = not isolated. */
interface ViewedPod {
  readonly key: PodKey;
  readonly ingress?: RuleList;
  readonly egress?: RuleList;
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
    const list = pod[direction];
    if (list === undefined) return { kind: "not-isolated", pod: pod.key };
    if (isToItself || isWithNode) return { kind: "always", pod: pod.key };
    const rule = list.rules.find((each) => matchesRule(view, each, direction, connection));
    return rule ? { kind: "allowed", pod: pod.key, policy: rule.policy, index: rule.index } : {
      kind: "denied",
      pod: pod.key,
      policies: list.policies,
      ...(list.excess && { excess: list.excess }),
    };
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
      const ingress = pod.ingress && lists.get(pod.ingress);
      const egress = pod.egress && lists.get(pod.egress);
      return { key: pod.key, ...(ingress && { ingress }), ...(egress && { egress }) };
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
      const listFor = (direction: Direction) => {
        const made = book.rulesOf(pod, direction);
        for (const source of made?.sources.values() ?? []) sources.set(source.id, source);
        return made?.list;
      };
      const [ingress, egress] = [listFor("ingress"), listFor("egress")];
      return { key: pod.key, ...(ingress && { ingress }), ...(egress && { egress }) };
    },
    hasPeer(id, { to, transport }) {
      const source = sources.get(id);
      if (source === undefined) return false;
      if (source.kind === "blocks") return BlockMatcher.of(source.members).contains(to);
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
      return `NetworkPolicy ${verdict.policy} lets it ${
        direction === "egress" ? "out of" : "into"
      } ` +
        `${verdict.pod}: spec.${direction}[${verdict.index}]`;
    case "denied": {
      const [names, isOne] = [policyNames(verdict.policies), verdict.policies.length === 1];
      const isolates = `${names} ${isOne ? "isolates" : "isolate"} ${verdict.pod} for ${direction}`;
      return verdict.excess === undefined
        ? `${isolates}, and none of ${isOne ? "its" : "their"} rules allows it`
        : `${isolates}, and allow${isOne ? "s" : ""} nothing: there are too many rules for this ` +
          `pod, or for the pods of its namespace on the node (${verdict.excess} for this one)`;
    }
  }
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
  if (policies.length === 1) return `NetworkPolicy ${policies[0]}`;
  const shown = policies.slice(0, MOST_NAMED);
  const more = policies.length - shown.length;
  const last = more > 0 ? `${more} more` : shown.pop();
  return `NetworkPolicies ${shown.join(", ")} and ${last}`;
}
