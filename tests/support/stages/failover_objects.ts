/**
 * The objects of {@linkcode FailoverCluster}, with the addresses of their Services.
 *
 * @module
 */
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { Layer2Owners } from "../../../lib/routing/layer2_owner.ts";
import { routingNodeOf } from "../../../lib/routing/routing_node.ts";
import type { RawObject } from "../../conformance/server.ts";
import { rawEndpointSlice, rawLoadBalancerService } from "../builders/raw_objects.ts";
import { rawNode } from "./routing_relay.ts";

/** The first node owns the addresses of Service `web` and has the endpoint of `local` at first. */
export const FAILOVER_NODES = ["node-a", "node-b"] as const;
/** The Services: `web` with policy Cluster, `local` with policy Local. */
export type FailoverService = "web" | "local";
/** The families, each with an address of either Service. */
export type ServiceAddresses = Readonly<Record<"IPv4" | "IPv6", string>>;

/** An endpoint of `web`, which is on neither node. */
export const FAILOVER_BACKEND = { IPv4: "192.168.9.1", IPv6: "fd09::1" };
/** The endpoints of `local`, one on each node. */
export const FAILOVER_PODS = FAILOVER_NODES.map((_, index) => ({
  IPv4: `10.180.${index}.9`,
  IPv6: `fd00:10:180:${index}::9`,
}));
/** The addresses of either Service. */
export type FailoverAddresses = Readonly<Record<FailoverService, ServiceAddresses>>;

/** Addresses of `web` that the first node owns, and any for `local`. */
export function chooseFailoverAddresses(): FailoverAddresses {
  const owners = new Layer2Owners([]);
  for (const name of FAILOVER_NODES) {
    owners.setNode(name, routingNodeOf(rawNode(name, "::") as never));
  }
  owners.setLive(new Set(FAILOVER_NODES));
  const choose = (prefix: string) => {
    const addresses = Array.from({ length: 9 }, (_, index) => parseIpAddress(`${prefix}5${index}`));
    for (const address of addresses) owners.setAddress(address, {});
    owners.update();
    return addresses.find((each) => owners.ownerOf(each) === FAILOVER_NODES[0])!;
  };
  return {
    web: { IPv4: choose("192.168.9."), IPv6: choose("fd09::") },
    local: { IPv4: "192.168.9.80", IPv6: "fd09::80" },
  };
}

/** The Nodes, the Services and their slices. */
export function failoverObjects(addresses: FailoverAddresses): readonly RawObject[] {
  return [
    rawNode(FAILOVER_NODES[0], "192.168.9.2"),
    rawNode(FAILOVER_NODES[1], "192.168.9.3"),
    rawService("web", "Cluster", addresses.web),
    rawService("local", "Local", addresses.local),
    ...rawSlices("web", FAILOVER_BACKEND, "elsewhere"),
    ...localSlices(0),
  ];
}

/** The slices of `local` with the endpoint on one node. */
export function localSlices(index: number): readonly RawObject[] {
  return rawSlices("local", FAILOVER_PODS[index]!, FAILOVER_NODES[index]!);
}

function rawService(
  name: FailoverService,
  policy: "Cluster" | "Local",
  { IPv4, IPv6 }: ServiceAddresses,
): RawObject {
  const clusterIPs = name === "web"
    ? ["172.30.0.41", "fd00:172:30::41"]
    : ["172.30.0.42", "fd00:172:30::42"];
  const service = rawLoadBalancerService(name, {
    ...{ clusterIP: clusterIPs[0]!, clusterIPs },
    ...{ ipFamilies: ["IPv4", "IPv6"], ipFamilyPolicy: "RequireDualStack" },
    externalTrafficPolicy: policy,
    ...(policy === "Local" && { healthCheckNodePort: 30_999 }),
    ports: [{ port: 80, protocol: "UDP", targetPort: 8080 }],
  });
  const annotations = { "kube-relay.io/load-balancer-ips": `${IPv4},${IPv6}` };
  return { ...service, metadata: { ...service.metadata, annotations } };
}

function rawSlices(
  service: string,
  addresses: ServiceAddresses,
  nodeName: string,
): readonly RawObject[] {
  return Object.entries(addresses).map(([addressType, address]) =>
    rawEndpointSlice(service, {
      ...{ suffix: addressType.toLowerCase(), addressType },
      endpoints: [{ address, nodeName }],
      ports: [{ name: "", port: 8080, protocol: "UDP" }],
    })
  );
}
