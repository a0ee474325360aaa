/**
 * Names of chains: upstream's where other software or users know them, and additional ones.
 *
 * @module
 */
import { contentId } from "../../lib/policy/content_id.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import { type ServicePortName, servicePortText } from "../../lib/proxy/service_port_name.ts";
import { MAX_CHAIN_NAME_LENGTH } from "./iptables/iptables_objects.ts";

/** The chains that one ServicePort may have, as kube-proxy names them. */
export interface ServiceChainNames {
  /** Picks among the endpoints of traffic policy Cluster. */
  readonly cluster: string;
  /** Picks among the endpoints of traffic policy Local. */
  readonly local: string;
  /** For packets to an external address. */
  readonly external: string;
  /** For the sources that may use the load balancer addresses. */
  readonly firewall: string;
}

/** Returns a hash as kube-proxy's names of chains have it. */
export function nameHash(text: string): string {
  return contentId(text).toUpperCase();
}

/** The names of the chains of a ServicePort. */
export function serviceChainNames(name: ServicePortName): ServiceChainNames {
  const hash = nameHash(hashedText(name));
  return {
    cluster: `KUBE-SVC-${hash}`,
    local: `KUBE-SVL-${hash}`,
    external: `KUBE-EXT-${hash}`,
    firewall: `KUBE-FW-${hash}`,
  };
}

/**
 * The name that kube-proxy gives to an endpoint's chain. We have no such chain, but the list of
 * clients (`recent`) of an endpoint has this name: so a take-over keeps the affinity of clients.
 */
export function endpointName(name: ServicePortName, endpoint: EndpointKey): string {
  return `KUBE-SEP-${nameHash(hashedText(name) + endpoint)}`;
}

/** Returns the name of a tree's chain: its label, or a hash of it if it is too long. */
export function prefixChainName(base: string, label: string): string {
  const name = base + label;
  return name.length <= MAX_CHAIN_NAME_LENGTH ? name : base + nameHash(label);
}

/** Upstream hashes name and protocol without a separator. */
function hashedText(name: ServicePortName): string {
  return servicePortText(name) + name.protocol.toLowerCase();
}
