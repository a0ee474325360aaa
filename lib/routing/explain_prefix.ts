/**
 * Says in words whether a node announces a prefix by BGP, to whom, and why not otherwise.
 *
 * @module
 */
import { type Cidr, cidrContains, cidrFamilyOf, networkOf, prefixLengthOf } from "../net/cidr.ts";
import { ipFamilyOf } from "../net/ip_address.ts";
import type { PrefixSource } from "./bgp_planner.ts";
import { type BgpPeer, type BgpPlan, carriesFamily } from "./bgp_plan.ts";
import { importSentence, peerImportSentence } from "./peer_imports.ts";
import type { PlannedRouting } from "./planned_routing.ts";

/** A paragraph of an explanation. */
export interface RoutingStep {
  readonly topic: string;
  /** A sentence without a full stop. */
  readonly text: string;
  /** @default {none} */
  readonly items?: readonly string[];
}

/** What the BGP daemon does now. */
export interface SeenSessions {
  /** The state of sessions in words, by the name of the peer. */
  readonly sessions: ReadonlyMap<string, string>;
  /** The prefixes that peers are sent; only peers whose session is up. */
  readonly sent: ReadonlyMap<string, ReadonlySet<string>>;
}

/** A peer that a prefix is announced to. */
export interface PrefixPeer extends Pick<BgpPeer, "name" | "address" | "as" | "role"> {
  /** The state of the session in words. Absent if the daemon was not asked. */
  readonly session?: string;
  /** Whether the daemon sends the prefix now. Absent if it was not asked. */
  readonly isSent?: boolean;
}

/** Whether a node announces a prefix. */
export interface PrefixReport {
  readonly prefix: Cidr;
  readonly node: string;
  /** The answer as a sentence without a full stop. */
  readonly headline: string;
  /** Whether the plan announces it. */
  readonly isAnnounced: boolean;
  readonly peers: readonly PrefixPeer[];
  readonly sources: readonly PrefixSource[];
  /** Announced prefixes that contain it. */
  readonly containedIn: readonly Cidr[];
  readonly steps: readonly RoutingStep[];
}

const KINDS: Readonly<Record<PrefixSource["kind"], string>> = {
  "cluster-ip": "cluster IP",
  "external-ip": "external IP",
  "load-balancer": "load balancer address",
  "pod-cidr": "range of the node's pods",
  "service-range": "range of cluster IPs",
};

/** The roles of peers in sentences. */
const ROLES: Readonly<Record<BgpPeer["role"], string>> = {
  "external": "external peer",
  "mesh": "node of the mesh",
  "reflector-client": "client of this route reflector",
};

const PLURALS: Readonly<Record<BgpPeer["role"], string>> = {
  "external": "external peers",
  "mesh": "nodes of the mesh",
  "reflector-client": "clients of this route reflector",
};

/** Explains a prefix. `seen` is absent if the daemon was not asked. */
export function explainPrefix(
  { bgp, nodeName: node }: Pick<PlannedRouting, "bgp" | "nodeName">,
  { prefix, seen }: { readonly prefix: Cidr; readonly seen?: SeenSessions | undefined },
): PrefixReport {
  const plan = bgp?.plan;
  if (!bgp || !plan) {
    const reason = bgp ? "its Node is not known" : "BGP is disabled";
    const headline = `NOT ANNOUNCED: ${node} announces nothing by BGP, because ${reason}`;
    return {
      ...{ prefix, node, headline, isAnnounced: false },
      ...{ peers: [], sources: [], containedIn: [], steps: [] },
    };
  }
  const announced = plan.announced.find((each) => each.prefix === prefix);
  const sources = bgp.sourcesOf(prefix);
  const family = cidrFamilyOf(prefix);
  const peers = plan.peers.filter((peer) =>
    announced?.to.includes(peer.role) && carriesFamily(peer, family)
  ).map((peer) => prefixPeer(peer, { prefix, seen }));
  const containedIn = plan.announced.map((each) => each.prefix).filter((other) =>
    prefixLengthOf(other) < prefixLengthOf(prefix) && cidrContains(other, networkOf(prefix))
  );
  return {
    prefix,
    node,
    headline: headlineOf(node, { isAnnounced: announced !== undefined, peers, sources }),
    isAnnounced: announced !== undefined,
    peers,
    sources,
    containedIn,
    steps: [
      sourceStep(sources),
      ...(announced === undefined ? [] : [peerStep(peers, family)]),
      ...attributeSteps(announced ?? { communities: [], largeCommunities: [] }),
      ...(containedIn.length === 0 ? [] : [{
        topic: "Contained in",
        text: `${containedIn.join(", ")}, which ${node} announces`,
      }]),
      ...receivedSteps(plan, prefix),
    ],
  };
}

function prefixPeer(
  { name, address, as, role }: BgpPeer,
  { prefix, seen }: { readonly prefix: Cidr; readonly seen: SeenSessions | undefined },
): PrefixPeer {
  const session = seen?.sessions.get(name) ?? (seen && "the BGP daemon does not have the session");
  return {
    ...{ name, address, as, role },
    ...(session !== undefined && { session }),
    ...(seen && { isSent: seen.sent.get(name)?.has(prefix) ?? false }),
  };
}

function headlineOf(
  node: string,
  { isAnnounced, peers, sources }: Pick<PrefixReport, "isAnnounced" | "peers" | "sources">,
): string {
  if (!isAnnounced) return `NOT ANNOUNCED by ${node}: ${absenceText(sources)}`;
  const count = peers.length === 1 ? "1 peer" : `${peers.length} peers`;
  if (peers.length === 0) return `NOT ANNOUNCED by ${node}: it may, but has no peer that gets it`;
  const waiting = peers.filter(({ isSent }) => isSent === false).length;
  if (waiting === 0) return `ANNOUNCED by ${node} to ${count}`;
  return waiting === peers.length
    ? `PLANNED by ${node} for ${count}, but sent to none now`
    : `ANNOUNCED by ${node} to ${peers.length - waiting} of ${count}`;
}

function absenceText(sources: readonly PrefixSource[]): string {
  const obstacles = new Set(sources.map(({ obstacle }) => obstacle));
  const [first] = obstacles;
  if (first === undefined) return "no Service and no range has exactly this prefix";
  return obstacles.size === 1 ? first : "each Service or range that has it has an obstacle";
}

function sourceStep(sources: readonly PrefixSource[]): RoutingStep {
  const items = sources.map(({ kind, service, to, obstacle }) => {
    const name = service === undefined ? KINDS[kind] : `Service ${service} (${KINDS[kind]})`;
    return obstacle === undefined
      ? `${name}: for ${to.map((role) => PLURALS[role]).join(" and ")}`
      : `${name}: not announced: ${obstacle}`;
  });
  const text = items.length === 0 ? "no Service and no range has it" : "it belongs to";
  return { topic: "Sources", text, ...(items.length > 0 && { items }) };
}

function peerStep(peers: readonly PrefixPeer[], family: string): RoutingStep {
  if (peers.length === 0) {
    const remedy = `add a peer with an address of ${family}, or set bothFamilies of a peer`;
    return { topic: "Peers", text: `no session for these peers carries ${family}: ${remedy}` };
  }
  const items = peers.map(({ name, address, as, role, session, isSent }) => {
    const peer = `${name} (${address}, AS ${as}, ${ROLES[role]})`;
    if (isSent === undefined) return peer;
    return `${peer}: ${isSent ? "sent" : "NOT SENT"}; ${session}`;
  });
  return { topic: "Peers", text: "it is for", items };
}

function attributeSteps(
  { communities, largeCommunities, localPreference }: {
    readonly communities: readonly string[];
    readonly largeCommunities: readonly string[];
    readonly localPreference?: number;
  },
): readonly RoutingStep[] {
  const texts = [
    ...(communities.length > 0 ? [`communities ${communities.join(", ")}`] : []),
    ...(largeCommunities.length > 0 ? [`large communities ${largeCommunities.join(", ")}`] : []),
    ...(localPreference === undefined ? [] : [`local preference ${localPreference}`]),
  ];
  return texts.length === 0 ? [] : [{ topic: "Attributes", text: texts.join("; ") }];
}

/** What is done with the prefix if peers send it. */
function receivedSteps({ peers, imports }: BgpPlan, prefix: Cidr): readonly RoutingStep[] {
  const isAny = (isSo: (peer: BgpPeer) => boolean) => peers.some(isSo);
  const roles = [
    ...(isAny(({ role }) => role !== "external") ? ["mesh" as const] : []),
    ...(isAny((peer) => peer.role === "external" && !peer.import) ? ["external" as const] : []),
  ];
  const items = [
    ...roles.map((role) => `from ${PLURALS[role]}: ${importSentence(imports, { prefix, role })}`),
    ...peers.flatMap(({ name, address, import: own }) =>
      own && ipFamilyOf(address) === cidrFamilyOf(prefix)
        ? [`from peer ${name}: ${peerImportSentence(imports, { prefix, own })}`]
        : []
    ),
  ];
  return items.length === 0 ? [] : [{ topic: "Received", text: "a route for it would be", items }];
}
