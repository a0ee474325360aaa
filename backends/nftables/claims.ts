/**
 * Which keys of the table a ServicePort lays claim to. Pure.
 *
 * @module
 */
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Port } from "../../lib/net/port.ts";
import { claimOrder } from "../../lib/proxy/claim_order.ts";
import { hairpinEndpoints } from "../../lib/proxy/hairpin.ts";
import type { Packet } from "../../lib/proxy/packet.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";

/**
 * As what a key is claimed. Where several roles of one ServicePort meet at a key, the earlier one wins,
 * as in kube-proxy: an external IP that is also a load balancer's has no source ranges.
 */
const ROLES = [
  "clusterIp",
  "externalIp",
  "loadBalancer",
  "nodePort",
  "allocated",
  "hairpin",
] as const;

/** One of {@linkcode ROLES}. */
export type Role = typeof ROLES[number];

/** The container and key that a claim is for, e.g. `service-ips 10.96.0.1 . tcp . 80`. */
export type EntryId = string & { readonly __brand: "EntryId" };

/** A claim to an entry. */
export interface Claim {
  readonly id: EntryId;
  readonly role: Role;
}

/** What an entry is chosen for among its claims. */
export interface RankedClaim {
  readonly key: ServicePortKey;
  readonly role: Role;
  /** That of {@linkcode claimOrder}: it decides between ServicePorts, as in every mode. */
  readonly order: string;
}

/** Every claim of a ServicePort, each entry once for each role. */
export function claimsOf(plan: ServicePlan): readonly Claim[] {
  const { clusterIp, externalIps, loadBalancerVips, nodePort } = plan;
  const claims: Claim[] = [
    { id: vipId(clusterIp, plan), role: "clusterIp" },
    { id: allocatedId(clusterIp), role: "allocated" },
  ];
  for (const address of externalIps) claims.push({ id: vipId(address, plan), role: "externalIp" });
  for (const address of loadBalancerVips) {
    claims.push({ id: vipId(address, plan), role: "loadBalancer" });
  }
  if (nodePort !== undefined) {
    claims.push({ id: entryId("node-ports", portKey(plan, nodePort)), role: "nodePort" });
  }
  for (const address of new Set(hairpinEndpoints(plan).map(({ address }) => address))) {
    claims.push({ id: entryId("hairpin", `${address} . ${address}`), role: "hairpin" });
  }
  return claims;
}

/** Every entry that a packet may meet, the one for an endpoint that is sent its own packet included. */
export function entriesMet({ from, to, port, protocol }: Packet): readonly EntryId[] {
  const front = { port, protocol };
  return [
    entryId("service-ips", vipKey(to, front)),
    entryId("node-ports", portKey(front, port)),
    allocatedId(to),
    entryId("hairpin", `${from.address} . ${from.address}`),
  ];
}

/** The claim of a ServicePort to an entry, with what decides between several. */
export function rankedClaim(plan: ServicePlan, role: Role): RankedClaim {
  return { key: plan.key, role, order: claimOrder(plan, { isClusterIp: role === "clusterIp" }) };
}

/** Which of two claims to one entry goes first: negative = the left one. */
export function compareClaims(left: RankedClaim, right: RankedClaim): number {
  if (left.order !== right.order) return left.order < right.order ? -1 : 1;
  return ROLES.indexOf(left.role) - ROLES.indexOf(right.role);
}

/**
 * Puts a claim in its place among the sorted ones of an entry. Thousands of Services may share one
 * external IP, or an endpoint: to sort them anew for each would take as long as their number squared.
 */
export function insertClaim(claims: RankedClaim[], claim: RankedClaim): void {
  claims.splice(placeOf(claims, claim), 0, claim);
}

/** Takes a claim from the sorted ones of an entry. */
export function removeClaim(claims: RankedClaim[], claim: RankedClaim): void {
  const place = placeOf(claims, claim);
  const found = claims[place];
  if (found === undefined || compareClaims(found, claim) !== 0) return;
  // V8 moves all others for splice(0, 1), and none for shift().
  if (place === 0) claims.shift();
  else claims.splice(place, 1);
}

/** Where a claim stands, or would stand. */
function placeOf(claims: readonly RankedClaim[], claim: RankedClaim): number {
  let [low, high] = [0, claims.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (compareClaims(claims[middle]!, claim) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The entry of a cluster IP, whatever its ports. */
export function allocatedId(address: IpAddress): EntryId {
  return entryId("cluster-ips", address);
}

function vipKey(
  address: IpAddress,
  { port, protocol }: Pick<ServicePlan, "port" | "protocol">,
): string {
  return `${address} . ${protocol.toLowerCase()} . ${port}`;
}

/** The key that an entry is for. */
export function keyOfEntry(id: EntryId): string {
  return id.slice(id.indexOf(" ") + 1);
}

function vipId(address: IpAddress, plan: ServicePlan): EntryId {
  return entryId("service-ips", vipKey(address, plan));
}

function portKey({ protocol }: Pick<ServicePlan, "protocol">, port: Port): string {
  return `${protocol.toLowerCase()} . ${port}`;
}

function entryId(container: "cluster-ips" | "hairpin" | "node-ports" | "service-ips", key: string) {
  return `${container} ${key}` as EntryId;
}
