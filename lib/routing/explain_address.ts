/**
 * Says in words which Service has an address, which pool it comes from, and how clients reach it.
 *
 * @module
 */
import { hostCidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import { type AddressPool, poolOf } from "./address_pool.ts";
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
  return {
    ...{ address, node: nodeName, headline },
    ...(pool && { pool: pool.name }),
    services,
    ...(isLayer2 && { layer2: { ...(owner !== undefined && { owner }), candidates } }),
    bgp,
    steps: [
      { topic: "Pool", text: poolText(pool) },
      serviceStep(services, nodeAt),
      isLayer2
        ? layer2Step(planned, owner, candidates, heldItems(nodeName, address, owner, seen.held))
        : { topic: "Layer 2", text: `no node answers for it: ${absenceText(pool, services)}` },
      { topic: "BGP", text: bgp.headline },
      // Its headline has the reason of a single source.
      ...bgp.steps.filter(({ topic }) =>
        topic !== "Received" && (topic !== "Sources" || bgp.sources.length > 1)
      ),
    ],
  };
}

function poolText(pool: AddressPool | undefined): string {
  if (!pool) return "it is in no pool, so kube-relay never assigns it";
  const { name, announce, autoAssign } = pool;
  const how = announce === "none" ? "which is not announced" : `announced by ${announce}`;
  const condition = autoAssign ? "" : "; Services get its addresses only if they ask for them";
  return `'${name}', ${how}${condition}`;
}

function serviceStep(services: readonly AddressHolder[], nodeAt: string | undefined): RoutingStep {
  const topic = "Services";
  if (services.length === 0) {
    const text = nodeAt === undefined
      ? "no Service of type LoadBalancer has it"
      : "no Service gets it, because addresses of nodes are never assigned";
    return { topic, text };
  }
  return {
    topic,
    text: services.length === 1 ? "it belongs to" : "it is shared by",
    items: services.map(({ service, refusals }) =>
      [service, ...refusals.map((refusal) => `BUT ${refusal}`)].join(": ")
    ),
  };
}

function absenceText(pool: AddressPool | undefined, services: readonly AddressHolder[]): string {
  if (services.length === 0) return "no Service has it";
  if (!pool) return "it is in no pool";
  return pool.announce === "layer2"
    ? "its Service has no port that is served at it"
    : `pool '${pool.name}' is not announced by layer2`;
}

function layer2Step(
  { areLeasesKnown }: PlannedRouting,
  owner: string | undefined,
  candidates: readonly OwnerCandidate[],
  held: readonly string[],
): RoutingStep {
  const able = candidates.filter(({ obstacle }) => obstacle === undefined).length;
  const items = candidates.map(({ node, obstacle }) =>
    node === owner
      ? `${node}: owns it`
      : obstacle === undefined
      ? `${node}: may own it, with a lower score`
      : `${node}: cannot: ${obstacle}`
  );
  const leases = areLeasesKnown
    ? ""
    : " (Leases are not known here: every Node counts as running kube-relay)";
  const why = able === 1 ? "the only candidate" : `the highest score of ${able} candidates`;
  const text = owner === undefined
    ? `no node can answer for it${leases}`
    : `${owner} answers for it: it is ${why}${leases}`;
  return { topic: "Layer 2", text, items: [...items, ...held] };
}

function heldItems(
  nodeName: string,
  address: IpAddress,
  owner: string | undefined,
  held: HeldAddresses | undefined,
): readonly string[] {
  if (!held) return [];
  const device = held.get(address);
  if (owner !== nodeName) {
    return device === undefined ? [] : [`BUT this node still has it on ${device}`];
  }
  return [
    device === undefined
      ? "BUT this node does not have it on any interface; see kube-relay status"
      : `this node has it on ${device}`,
  ];
}
