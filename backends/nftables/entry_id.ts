import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Port } from "../../lib/net/port.ts";
import { type Frontend, frontendsOf, hairpinEndpoints } from "../../lib/proxy/frontend.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";

/** Containers whose elements belong to one or several ServicePorts. */
type EntryContainer = "cluster-ips" | "hairpin" | "node-ports" | "service-ips";

/** A container and key, e.g. `service-ips 10.96.0.1 . tcp . 80`. */
export type EntryId = string & { readonly __brand: "EntryId" };

/** Returns every entry that a ServicePort needs, each once. Only frontends have an owner. */
export function claimsOf(plan: ServicePlan): readonly EntryId[] {
  const ids = frontendsOf(plan).map((frontend) => frontendId(frontend, plan));
  ids.push(allocatedId(plan.clusterIp));
  const senders = hairpinEndpoints(plan);
  if (senders.length === 0) return ids;
  for (const address of new Set(senders.map(({ address }) => address))) {
    ids.push(hairpinId(address));
  }
  return ids;
}

/** Plans with more frontends get an index. */
const FEW_FRONTENDS = 8;
const indexes = new WeakMap<ServicePlan, ReadonlyMap<EntryId, Frontend>>();

/** The frontend of a ServicePort that an entry is for; `undefined` = the entry is for none. */
export function frontendAt(id: EntryId, plan: ServicePlan): Frontend | undefined {
  // Half of the entries are for none, and a first load asks several times for each.
  if (!id.startsWith("service-ips ") && !isNodePort(id)) return undefined;
  if (plan.externalIps.length + plan.loadBalancerVips.length <= FEW_FRONTENDS) {
    return frontendsOf(plan).find((frontend) => frontendId(frontend, plan) === id);
  }
  const known = indexes.get(plan);
  const index = known ??
    new Map(frontendsOf(plan).map((frontend) => [frontendId(frontend, plan), frontend]));
  if (known === undefined) indexes.set(plan, index);
  return index.get(id);
}

/** Whether an entry is for a node port. */
export function isNodePort(id: EntryId): boolean {
  return id.startsWith("node-ports ");
}

/** The entry of an endpoint that is sent its own packets. */
export function hairpinId(address: IpAddress): EntryId {
  return entryId("hairpin", `${address} . ${address}`);
}

/** The entry of a cluster IP for all ports. */
function allocatedId(address: IpAddress): EntryId {
  return entryId("cluster-ips", address);
}

function vipKey(
  address: IpAddress,
  { port, protocol }: Pick<ServicePlan, "port" | "protocol">,
): string {
  return `${address} . ${protocol.toLowerCase()} . ${port}`;
}

/** The container that an entry is in. */
export function containerOf(id: EntryId): EntryContainer {
  return id.slice(0, id.indexOf(" ")) as EntryContainer;
}

/** The key that an entry is for. */
export function keyOfEntry(id: EntryId): string {
  return id.slice(id.indexOf(" ") + 1);
}

/** The entry of a frontend. */
export function frontendId({ address, port }: Frontend, { protocol }: ServicePlan): EntryId {
  return address === undefined
    ? entryId("node-ports", portKey({ protocol }, port))
    : entryId("service-ips", vipKey(address, { port, protocol }));
}

function portKey({ protocol }: Pick<ServicePlan, "protocol">, port: Port): string {
  return `${protocol.toLowerCase()} . ${port}`;
}

function entryId(container: EntryContainer, key: string): EntryId {
  return `${container} ${key}` as EntryId;
}
