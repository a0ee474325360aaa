/**
 * Says in words which Service has an address, which pool it comes from, and how clients reach it; and
 * whether a node announces a prefix by BGP, to whom, and why not otherwise.
 *
 * @module
 */
import {
  type Cidr,
  cidrContains,
  cidrFamilyOf,
  hostCidr,
  networkOf,
  prefixLengthOf,
} from "../net/cidr.ts";
import { type IpAddress, ipFamilyOf } from "../net/ip_address.ts";
import { poolOf } from "./address_pool.ts";
import {
  type BgpImports,
  type BgpPeer,
  type BgpPlan,
  carriesFamily,
  type ImportedPrefix,
  LONGEST_PREFIX,
  type PeerImports,
} from "./bgp_plan.ts";
import type { PrefixSource } from "./bgp_planner.ts";
import type { OwnerCandidate } from "./layer2_owner.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import type { AddressHolder, PlannedRouting } from "./planned_routing.ts";

/** What the machine was found to do. Absent parts were not asked. */
export interface SeenRouting {
  readonly bgp?: SeenSessions;
  /** The addresses that this node holds now, by interface. */
  readonly held?: ReadonlyMap<IpAddress, string>;
}

/** An address, with everything that decides how clients reach it. */
export interface AddressReport {
  readonly address: IpAddress;
  readonly node: string;
  /** The answer as a sentence without a full stop. */
  readonly headline: string;
  readonly pool?: string;
  readonly services: readonly AddressHolder[];
  /** Absent if no Service of a pool with layer 2 has it. */
  readonly layer2?: {
    /** Absent if no node can own it. */
    readonly owner?: string;
    readonly candidates: readonly OwnerCandidate[];
  };
  readonly bgp: PrefixReport;
  readonly steps: readonly RoutingStep[];
}

/** Explains an address. */
export function explainAddress(
  planned: PlannedRouting,
  { address, seen = {} }: { readonly address: IpAddress; readonly seen?: SeenRouting },
): AddressReport {
  const { nodeName, owners, settings: { pools } } = planned;
  const pool = poolOf(pools, address);
  const services = planned.holdersOf(address);
  const isLayer2 = owners.servicesAt(address).length > 0;
  const owner = owners.ownerOf(address);
  const candidates = owners.candidates(address);
  const bgp = explainPrefix(planned, { prefix: hostCidr(address), seen: seen.bgp });
  const nodeAt = planned.nodeAt(address);
  const headline = nodeAt !== undefined
    ? `OF A NODE: ${address} is the address of node ${nodeAt}`
    : isLayer2 && owner !== undefined
    ? `REACHABLE: ${owner} answers for ${address}`
    : bgp.isAnnounced
    ? bgp.headline
    : isLayer2
    ? `NOT REACHABLE: no node can answer for ${address}`
    : services.length > 0
    ? `NOT ANNOUNCED by ${nodeName}`
    : bgp.sources.length > 0
    ? bgp.headline
    : pool
    ? `FREE: no Service has ${address}`
    : `UNKNOWN: no Service and no pool has ${address}`;
  const poolText = pool === undefined
    ? "it is in no pool, so kube-relay never assigns it"
    : `'${pool.name}', ` +
      (pool.announce === "none" ? "which is not announced" : `announced by ${pool.announce}`) +
      (pool.autoAssign ? "" : "; Services get its addresses only if they ask for them");
  const serviceText = services.length > 1
    ? "it is shared by"
    : services.length === 1
    ? "it belongs to"
    : nodeAt === undefined
    ? "no Service of type LoadBalancer has it"
    : "no Service gets it, because addresses of nodes are never assigned";
  const absence = services.length === 0
    ? "no Service has it"
    : !pool
    ? "it is in no pool"
    : pool.announce === "layer2"
    ? "its Service has no port that is served at it"
    : `pool '${pool.name}' is not announced by layer2`;
  return {
    ...{ address, node: nodeName, headline },
    ...(pool && { pool: pool.name }),
    services,
    ...(isLayer2 && { layer2: { ...(owner !== undefined && { owner }), candidates } }),
    bgp,
    steps: [
      { topic: "Pool", text: poolText },
      {
        topic: "Services",
        text: serviceText,
        ...(services.length > 0 && {
          items: services.map(({ service, refusals }) =>
            [service, ...refusals.map((refusal) => `BUT ${refusal}`)].join(": ")
          ),
        }),
      },
      isLayer2
        ? layer2Step(planned, owner, candidates, seen.held && [seen.held.get(address)])
        : { topic: "Layer 2", text: `no node answers for it: ${absence}` },
      { topic: "BGP", text: bgp.headline },
      // Its headline has the reason of a single source.
      ...bgp.steps.filter(({ topic }) =>
        topic !== "Received" && (topic !== "Sources" || bgp.sources.length > 1)
      ),
    ],
  };
}

/** Why a Service has its addresses, or none. */
export interface ServiceAddressReport {
  readonly service: ServiceKey;
  /** The answer as a sentence without a full stop. */
  readonly headline: string;
  readonly addresses: readonly AddressReport[];
  readonly steps: readonly RoutingStep[];
}

/** Explains the addresses of a Service. */
export function explainService(
  planned: PlannedRouting,
  { service, seen = {} }: { readonly service: ServiceKey; readonly seen?: SeenRouting },
): ServiceAddressReport {
  const found = planned.statuses.get(service);
  const refusals = planned.refusalsOf(service);
  const addresses = (found ?? []).map((address) => explainAddress(planned, { address, seen }));
  const assigned = planned.assignedTo(service) ?? [];
  const headline = found === undefined
    ? `UNKNOWN: no Service is called ${service}`
    : addresses.length > 0
    ? `HAS ${found.join(", ")}`
    : assigned.length > 0
    ? `WAITS: it gets ${assigned.join(", ")}, which its status does not have yet`
    : `NO ADDRESS: ${refusals.join("; ") || "its type is not LoadBalancer"}`;
  const steps = [
    ...(addresses.length > 0 ? refusals : []).map((text) => ({ topic: "But", text })),
    ...addresses.map(({ address, headline }) => ({ topic: address, text: headline })),
  ];
  return { service, headline, addresses, steps };
}

/** `held`: the interface of this node that has the address; absent if it was not asked. */
function layer2Step(
  { areLeasesKnown, nodeName }: PlannedRouting,
  owner: string | undefined,
  candidates: readonly OwnerCandidate[],
  held: readonly [device: string | undefined] | undefined,
): RoutingStep {
  const able = candidates.filter(({ obstacle }) => obstacle === undefined).length;
  const items = candidates.map(({ node, obstacle }) =>
    node === owner
      ? `${node}: owns it`
      : obstacle === undefined
      ? `${node}: may own it, with a lower score`
      : `${node}: cannot: ${obstacle}`
  );
  if (held) {
    const [device] = held;
    if (owner === nodeName) {
      items.push(
        device === undefined
          ? "BUT this node does not have it on any interface; see kube-relay status"
          : `this node has it on ${device}`,
      );
    } else if (device !== undefined) items.push(`BUT this node still has it on ${device}`);
  }
  const leases = areLeasesKnown
    ? ""
    : " (Leases are not known here: every Node counts as running kube-relay)";
  const why = able === 1 ? "the only candidate" : `the highest score of ${able} candidates`;
  const text = owner === undefined
    ? `no node can answer for it${leases}`
    : `${owner} answers for it: it is ${why}${leases}`;
  return { topic: "Layer 2", text, items };
}

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

/** Whether a node announces a prefix. */
export interface PrefixReport {
  readonly prefix: Cidr;
  readonly node: string;
  /** The answer as a sentence without a full stop. */
  readonly headline: string;
  /** Whether the plan announces it. */
  readonly isAnnounced: boolean;
  readonly peers: readonly (Pick<BgpPeer, "name" | "address" | "as" | "role"> & {
    /** The state of the session in words. Absent if the daemon was not asked. */
    readonly session?: string;
    /** Whether the daemon sends the prefix now. Absent if it was not asked. */
    readonly isSent?: boolean;
  })[];
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
  ).map(({ name, address, as, role }) => ({
    ...{ name, address, as, role },
    ...(seen && {
      session: seen.sessions.get(name) ?? "the BGP daemon does not have the session",
      isSent: seen.sent.get(name)?.has(prefix) ?? false,
    }),
  }));
  const containedIn = plan.announced.map((each) => each.prefix).filter((other) =>
    prefixLengthOf(other) < prefixLengthOf(prefix) && cidrContains(other, networkOf(prefix))
  );
  const obstacles = new Set(sources.map(({ obstacle }) => obstacle));
  const [obstacle = "no Service and no range has exactly this prefix"] = obstacles;
  const sent = peers.filter((peer) => peer.isSent ?? true).length;
  const count = peers.length === 1 ? "1 peer" : `${peers.length} peers`;
  const headline = !announced
    ? `NOT ANNOUNCED by ${node}: ` +
      (obstacles.size > 1 ? "each Service or range that has it has an obstacle" : obstacle)
    : peers.length === 0
    ? `NOT ANNOUNCED by ${node}: it may, but has no peer that gets it`
    : sent === peers.length
    ? `ANNOUNCED by ${node} to ${count}`
    : sent === 0
    ? `PLANNED by ${node} for ${count}, but sent to none now`
    : `ANNOUNCED by ${node} to ${sent} of ${count}`;
  const { communities = [], largeCommunities = [], localPreference } = announced ?? {};
  const attributes = [
    ...(communities.length > 0 ? [`communities ${communities.join(", ")}`] : []),
    ...(largeCommunities.length > 0 ? [`large communities ${largeCommunities.join(", ")}`] : []),
    ...(localPreference === undefined ? [] : [`local preference ${localPreference}`]),
  ];
  const steps: RoutingStep[] = [{
    topic: "Sources",
    text: sources.length === 0 ? "no Service and no range has it" : "it belongs to",
    ...(sources.length > 0 && {
      items: sources.map(({ kind, service, to, obstacle }) => {
        const name = service === undefined ? KINDS[kind] : `Service ${service} (${KINDS[kind]})`;
        return obstacle === undefined
          ? `${name}: for ${to.map((role) => PLURALS[role]).join(" and ")}`
          : `${name}: not announced: ${obstacle}`;
      }),
    }),
  }];
  if (announced) {
    steps.push(
      peers.length === 0
        ? {
          topic: "Peers",
          text: `no session for these peers carries ${family}: add a peer with an address of ` +
            `${family}, or set bothFamilies of a peer`,
        }
        : {
          topic: "Peers",
          text: "it is for",
          items: peers.map(({ name, address, as, role, session, isSent }) =>
            `${name} (${address}, AS ${as}, ${ROLES[role]})` +
            (isSent === undefined ? "" : `: ${isSent ? "sent" : "NOT SENT"}; ${session}`)
          ),
        },
    );
  }
  if (attributes.length > 0) steps.push({ topic: "Attributes", text: attributes.join("; ") });
  if (containedIn.length > 0) {
    const text = `${containedIn.join(", ")}, which ${node} announces`;
    steps.push({ topic: "Contained in", text });
  }
  const received = receivedItems(plan, prefix);
  if (received.length > 0) {
    steps.push({ topic: "Received", text: "a route for it would be", items: received });
  }
  return {
    ...{ prefix, node, headline, isAnnounced: announced !== undefined },
    ...{ peers, sources, containedIn, steps },
  };
}

/** What is done with the prefix if peers send it. */
function receivedItems({ peers, imports }: BgpPlan, prefix: Cidr): readonly string[] {
  const isAny = (isSo: (peer: BgpPeer) => boolean) => peers.some(isSo);
  const roles = [
    ...(isAny(({ role }) => role !== "external") ? ["mesh" as const] : []),
    ...(isAny((peer) => peer.role === "external" && !peer.import) ? ["external" as const] : []),
  ];
  return [
    ...roles.map((role) => `from ${PLURALS[role]}: ${importSentence(imports, prefix, role)}`),
    ...peers.flatMap(({ name, address, import: own }) =>
      own && ipFamilyOf(address) === cidrFamilyOf(prefix)
        ? [`from peer ${name}: ${peerImportSentence(imports, { prefix, own })}`]
        : []
    ),
  ];
}

/** Says whether a route that peers of a role send is accepted, as the end of a sentence. */
function importSentence(
  imports: BgpImports,
  prefix: Cidr,
  role: "mesh" | "external",
): string {
  const refusing = refusingRange(imports, prefix);
  if (refusing !== undefined) return refusing;
  if (prefixLengthOf(prefix) === 0) {
    return role === "external" && imports.defaultRoute
      ? "accepted, because routing.bgp.imports.defaultRoute is on"
      : DEFAULT_ROUTE;
  }
  const accepting = imports[role].find((range) => isWithin(prefix, range));
  return accepting === undefined
    ? "refused: no range that is accepted from such peers contains it"
    : `accepted, because ${accepting} is`;
}

/** As {@linkcode importSentence}, for a peer with imports of its own. */
export function peerImportSentence(
  imports: BgpImports,
  { prefix, own }: { readonly prefix: Cidr; readonly own: PeerImports },
): string {
  if (prefixLengthOf(prefix) === 0) {
    return own.defaultRoute ? "accepted, because its import.defaultRoute is on" : DEFAULT_ROUTE;
  }
  const length = prefixLengthOf(prefix);
  const find = (ranges: readonly ImportedPrefix[]) =>
    ranges.find(({ prefix: range, minLength, maxLength }) =>
      isWithin(prefix, range) && minLength <= length && length <= maxLength
    );
  const cluster = find(own.clusterPrefixes);
  if (cluster) return `accepted, because its import.clusterPrefixes has ${rangeText(cluster)}`;
  const refusing = refusingRange(imports, prefix);
  if (refusing !== undefined) return refusing;
  const accepting = find(own.prefixes);
  return accepting
    ? `accepted, because its import.prefixes has ${rangeText(accepting)}`
    : "refused: its import.prefixes does not have it";
}

/** Lists what a peer with imports of its own may send. */
export function acceptedText({ import: own }: Pick<BgpPeer, "import">): string | undefined {
  if (!own) return undefined;
  const parts = [
    ...own.prefixes.map(rangeText),
    ...own.clusterPrefixes.map((range) => `${rangeText(range)} of the cluster`),
    ...(own.defaultRoute ? ["a default route"] : []),
  ];
  const shown = parts.slice(0, MOST_NAMED).join(", ");
  const more = parts.length - MOST_NAMED;
  return parts.length === 0 ? "nothing" : more > 0 ? `${shown} and ${more} more` : shown;
}

const MOST_NAMED = 5;
const DEFAULT_ROUTE = "refused: it is the default route";

function refusingRange({ refused }: BgpImports, prefix: Cidr): string | undefined {
  const range = refused.find((each) => isWithin(prefix, each));
  return range && `refused: ${range} belongs to this cluster`;
}

function isWithin(prefix: Cidr, range: Cidr): boolean {
  return cidrFamilyOf(prefix) === cidrFamilyOf(range) &&
    prefixLengthOf(prefix) >= prefixLengthOf(range) &&
    cidrContains(range, networkOf(prefix));
}

/** E.g. `10.0.0.0/8`, or `10.0.0.0/8 with lengths 16 to 24`. */
function rangeText({ prefix, minLength, maxLength }: ImportedPrefix): string {
  return minLength === prefixLengthOf(prefix) && maxLength === LONGEST_PREFIX[cidrFamilyOf(prefix)]
    ? prefix
    : `${prefix} with lengths ${minLength} to ${maxLength}`;
}
