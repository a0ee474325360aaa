/**
 * Says in words which Service has an address, which pool it comes from, and how clients reach it.
 *
 * @module
 */
import { hostCidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import { poolOf } from "./address_pool.ts";
import {
  explainPrefix,
  type PrefixReport,
  type RoutingStep,
  type SeenSessions,
} from "./explain_prefix.ts";
import type { OwnerCandidate } from "./layer2_owner.ts";
import type { AddressHolder, PlannedRouting } from "./planned_routing.ts";

/** The addresses that this node holds now, by interface. */
export type HeldAddresses = ReadonlyMap<IpAddress, string>;

/** What the machine was found to do. Absent parts were not asked. */
export interface SeenRouting {
  readonly bgp?: SeenSessions;
  readonly held?: HeldAddresses;
}

/** An address, with everything that decides how clients reach it. */
export interface AddressReport {
  readonly address: IpAddress;
  readonly node: string;
  /** The answer as a sentence without a full stop. */
  readonly headline: string;
  /** The name of its pool. */
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
  const { nodeName: node, owners, settings: { pools } } = planned;
  const pool = poolOf(pools, address);
  const services = planned.holdersOf(address);
  const isLayer2 = owners.servicesAt(address).length > 0;
  const owner = owners.ownerOf(address);
  const own = isLayer2
    ? { ...(owner !== undefined && { owner }), candidates: owners.candidates(address) }
    : undefined;
  const bgp = explainPrefix(planned, { prefix: hostCidr(address), seen: seen.bgp });
  const parts = { address, pool, services, own, bgp, planned, held: seen.held };
  return {
    address,
    node,
    headline: headlineOf(parts),
    ...(pool && { pool: pool.name }),
    services,
    ...(own && { layer2: own }),
    bgp,
    steps: [poolStep(parts), serviceStep(parts), layer2Step(parts), ...bgpSteps(parts)],
  };
}

interface Parts extends Pick<AddressReport, "address" | "services" | "bgp"> {
  readonly pool: ReturnType<typeof poolOf>;
  readonly own: AddressReport["layer2"];
  readonly planned: PlannedRouting;
  readonly held: HeldAddresses | undefined;
}

function headlineOf({ address, pool, services, own, bgp, planned }: Parts): string {
  const node = planned.nodeAt(address);
  if (node !== undefined) return `OF A NODE: ${address} is the address of node ${node}`;
  if (own?.owner !== undefined) return `REACHABLE: ${own.owner} answers for ${address}`;
  if (bgp.isAnnounced) return bgp.headline;
  if (own) return `NOT REACHABLE: no node can answer for ${address}`;
  if (services.length > 0) return `NOT ANNOUNCED by ${planned.nodeName}`;
  if (bgp.sources.length > 0) return bgp.headline;
  return pool
    ? `FREE: no Service has ${address}`
    : `UNKNOWN: no Service and no pool has ${address}`;
}

function poolStep({ pool }: Parts): RoutingStep {
  if (!pool) return { topic: "Pool", text: "it is in no pool, so kube-relay never assigns it" };
  const { name, announce, autoAssign } = pool;
  const how = announce === "none" ? "which is not announced" : `announced by ${announce}`;
  const condition = autoAssign ? "" : "; Services get its addresses only if they ask for them";
  return { topic: "Pool", text: `'${name}', ${how}${condition}` };
}

function serviceStep({ address, services, planned }: Parts): RoutingStep {
  const node = planned.nodeAt(address);
  if (services.length === 0) {
    const text = node === undefined
      ? "no Service of type LoadBalancer has it"
      : "no Service gets it, because addresses of nodes are never assigned";
    return { topic: "Services", text };
  }
  return {
    topic: "Services",
    text: services.length === 1 ? "it belongs to" : "it is shared by",
    items: services.map(({ service, refusals }) =>
      [service, ...refusals.map((refusal) => `BUT ${refusal}`)].join(": ")
    ),
  };
}

function layer2Step({ address, pool, services, own, planned, held }: Parts): RoutingStep {
  const topic = "Layer 2";
  if (!own) {
    if (services.length === 0) return { topic, text: "no node answers for it: no Service has it" };
    const reason = pool?.announce === "layer2"
      ? "its Service has no port that is served at it"
      : pool
      ? `pool '${pool.name}' is not announced by layer2`
      : "it is in no pool";
    return { topic, text: `no node answers for it: ${reason}` };
  }
  const { owner, candidates } = own;
  const able = candidates.filter(({ obstacle }) => obstacle === undefined).length;
  const items = candidates.map(({ node, obstacle }) =>
    node === owner
      ? `${node}: owns it`
      : obstacle === undefined
      ? `${node}: may own it, with a lower score`
      : `${node}: cannot: ${obstacle}`
  );
  const leases = planned.areLeasesKnown
    ? ""
    : " (Leases are not known here: every Node counts as running kube-relay)";
  const why = able === 1 ? "the only candidate" : `the highest score of ${able} candidates`;
  const text = owner === undefined
    ? `no node can answer for it${leases}`
    : `${owner} answers for it: it is ${why}${leases}`;
  return { topic, text, items: [...items, ...heldItems({ address, owner, planned, held })] };
}

function heldItems(
  { address, owner, planned: { nodeName }, held }:
    & Pick<Parts, "address" | "planned" | "held">
    & { readonly owner: string | undefined },
): readonly string[] {
  if (!held) return [];
  const device = held.get(address);
  if (owner === nodeName) {
    return [
      device === undefined
        ? "BUT this node does not have it on any interface; see kube-relay status"
        : `this node has it on ${device}`,
    ];
  }
  return device === undefined ? [] : [`BUT this node still has it on ${device}`];
}

/** Its headline has the reason of a single source. */
function bgpSteps({ bgp }: Parts): readonly RoutingStep[] {
  const isSaid = (topic: string) =>
    topic === "Received" || topic === "Sources" && bgp.sources.length < 2;
  return [
    { topic: "BGP", text: bgp.headline },
    ...bgp.steps.filter(({ topic }) => !isSaid(topic)),
  ];
}
