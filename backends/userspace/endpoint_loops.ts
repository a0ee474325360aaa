/**
 * Finds endpoints that lead back to this process, because it listens there itself. Forwarding to
 * one would open connections without end. Pure except for its own state.
 *
 * All frontends count, even those of a Service without a loop: a chain of Services needs two
 * descriptors for each link, and Kubernetes allows no cluster IP as an endpoint. Other proxies
 * rewrite a packet once, so no chain works there.
 *
 * @module
 */
import { cidrContains } from "../../lib/net/cidr.ts";
import {
  type IpAddress,
  isLoopback,
  isUnspecified,
  parseIpAddress,
} from "../../lib/net/ip_address.ts";
import { formatHostPort, type Protocol } from "../../lib/net/port.ts";
import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { Verdict } from "../../lib/proxy/verdict.ts";
import { STAND_IN_RANGE } from "./addresses/stand_ins.ts";
import type { ServiceAddress } from "./listeners.ts";
import { SetIndex } from "../../lib/net/set_index.ts";

/** An address and port of a socket. */
interface Place {
  readonly hostname: string;
  readonly port: number;
}

/** The part of a ServicePort that {@linkcode EndpointLoops} needs. */
export interface LoopPart {
  /** The frontends at which this process listens for it, or would listen with an endpoint. */
  readonly frontends: readonly ServiceAddress[];
  readonly endpoints: readonly (readonly Endpoint[])[];
}

/** A ServicePort without frontends and endpoints. */
export const NO_PART: LoopPart = { frontends: [], endpoints: [] };

const LOOPBACK = { IPv4: parseIpAddress("127.0.0.1"), IPv6: parseIpAddress("::1") };

/**
 * All frontends and endpoints of one IP family. The cost of an update depends on the change. A new
 * or removed frontend returns the ServicePorts that have it as an endpoint.
 */
export class EndpointLoops {
  /** Listeners of this process that serve more to local clients. */
  readonly #localListeners: readonly Place[];
  readonly #frontends = indexByProtocol();
  readonly #users = indexByProtocol();
  /** Frontends at which another program listens. */
  readonly #foreign: Readonly<Record<Protocol, Set<EndpointKey>>> = {
    TCP: new Set(),
    UDP: new Set(),
    SCTP: new Set(),
  };
  #affected = new Set<ServicePortKey>();

  constructor({ localListeners = [] }: { readonly localListeners?: readonly Place[] } = {}) {
    this.#localListeners = localListeners;
  }

  /** Replaces a ServicePort. */
  replace(
    { key, protocol }: Pick<ServicePlan, "key" | "protocol">,
    { from, to }: { readonly from: LoopPart; readonly to: LoopPart },
  ): void {
    const users = this.#users[protocol];
    for (const list of from.endpoints) {
      if (to.endpoints.includes(list)) continue;
      for (const endpoint of list) users.delete(placeOf(endpoint), key);
    }
    for (const list of to.endpoints) {
      for (const endpoint of list) users.add(placeOf(endpoint), key);
    }
    const places = { from: frontendPlaces(from), to: frontendPlaces(to) };
    const frontends = this.#frontends[protocol];
    for (const place of places.from) {
      if (places.to.has(place)) continue;
      frontends.delete(place, key);
      if (!frontends.has(place)) this.#foreign[protocol].delete(place);
      this.#touch(place, protocol);
    }
    for (const place of places.to) {
      if (places.from.has(place)) continue;
      frontends.add(place, key);
      this.#touch(place, protocol);
    }
  }

  /** The ServicePorts of which an endpoint has become a frontend, or ceased to be one, since the last call. */
  takeAffected(): ReadonlySet<ServicePortKey> {
    const affected = this.#affected;
    if (affected.size > 0) this.#affected = new Set();
    return affected;
  }

  /** Whether this process listens there for a ServicePort, or would listen with an endpoint. */
  isFrontend({ hostname, port }: Place, protocol: Protocol): boolean {
    return this.#frontends[protocol].has(formatHostPort(hostname, port) as EndpointKey);
  }

  /** Whether some ServicePort has this endpoint. */
  isEndpoint({ hostname, port }: Place, protocol: Protocol): boolean {
    return this.#users[protocol].has(formatHostPort(hostname, port) as EndpointKey);
  }

  /** Records whether another program listens at a frontend: then nothing leads back. */
  setForeign(
    { hostname, port }: Place,
    { protocol, isForeign }: { readonly protocol: Protocol; readonly isForeign: boolean },
  ): void {
    const place = formatHostPort(hostname, port) as EndpointKey;
    const foreign = this.#foreign[protocol];
    if (foreign.has(place) === isForeign) return;
    if (!isForeign) foreign.delete(place);
    else if (this.#frontends[protocol].has(place)) foreign.add(place);
    this.#touch(place, protocol);
  }

  /** The endpoints of a plan that must not be used, with the reason. */
  find(plan: ServicePlan): ReadonlyMap<EndpointKey, string> {
    const found = new Map<EndpointKey, string>();
    for (const list of endpointListsOf(plan)) {
      for (const endpoint of list) {
        const reason = this.reasonFor(endpoint, plan);
        if (reason !== undefined) found.set(endpoint.key, reason);
      }
    }
    return found;
  }

  /** The reason why a ServicePort must not connect to an endpoint; `undefined` = it may. */
  reasonFor(
    endpoint: Pick<Endpoint, "key" | "address" | "port">,
    { key, protocol }: Pick<ServicePlan, "key" | "protocol">,
  ): string | undefined {
    const place = placeOf(endpoint);
    const owners = [...this.#frontends[protocol].at(place)];
    if (owners.length > 0 && !this.#foreign[protocol].has(place)) {
      const owner = owners.includes(key) ? `${key} itself` : owners[0];
      return `it is an address of ${owner}, on which kube-relay listens, so that connections ` +
        "would come back to it. Use the endpoints of that Service instead";
    }
    if (!isLoopback(destinationOf(endpoint))) return undefined;
    if (cidrContains(STAND_IN_RANGE, endpoint.address)) {
      return `kube-relay reserves ${STAND_IN_RANGE} for stand-ins of cluster IPs. ` +
        "Give the endpoint another address";
    }
    if (protocol === "TCP" && this.#localListeners.some((at) => leadsTo(endpoint, at))) {
      return "kube-relay itself listens there, and answers more requests of local clients than " +
        "of remote ones. Use the node's own address instead";
    }
    return undefined;
  }

  #touch(place: EndpointKey, protocol: Protocol): void {
    for (const user of this.#users[protocol].at(place)) this.#affected.add(user);
  }
}

/** The lists of endpoints that a plan forwards to, each once. */
export function endpointListsOf(plan: ServicePlan): readonly (readonly Endpoint[])[] {
  const lists = new Set<readonly Endpoint[]>();
  for (const verdict of [plan.internal, plan.external, plan.externalFromCluster]) {
    if (verdict.kind === "forward") lists.add(verdict.endpoints);
  }
  return [...lists];
}

/** A plan that does not forward to these endpoints. */
export function withoutEndpoints(
  plan: ServicePlan,
  endpoints: ReadonlyMap<EndpointKey, unknown>,
): ServicePlan {
  const internal = verdictWithout(plan.internal, endpoints);
  const external = verdictWithout(plan.external, endpoints);
  const externalFromCluster = plan.externalFromCluster === plan.external
    ? external
    : verdictWithout(plan.externalFromCluster, endpoints);
  return { ...plan, internal, external, externalFromCluster };
}

/** Returns the reason why endpoints are left out, as one sentence for all of them. */
export function loopReason(found: ReadonlyMap<EndpointKey, string>): string {
  const [[key, reason] = ["", ""]] = found;
  const more = found.size > 1 ? `, and ${found.size - 1} more such endpoints` : "";
  return `Cannot forward to ${key}${more}: ${reason}`;
}

function verdictWithout(
  verdict: Verdict,
  left: ReadonlyMap<EndpointKey, unknown>,
): Verdict {
  if (verdict.kind !== "forward") return verdict;
  const endpoints = verdict.endpoints.filter(({ key }) => !left.has(key));
  return endpoints.length === 0 ? { kind: "reject" } : { kind: "forward", endpoints };
}

function indexByProtocol(): Readonly<Record<Protocol, SetIndex<EndpointKey, ServicePortKey>>> {
  return {
    TCP: new SetIndex(),
    UDP: new SetIndex(),
    SCTP: new SetIndex(),
  };
}

/** Linux treats the unspecified address as loopback. */
function destinationOf({ address }: Pick<Endpoint, "address">): IpAddress {
  if (!isUnspecified(address)) return address;
  return address.includes(":") ? LOOPBACK.IPv6 : LOOPBACK.IPv4;
}

function placeOf(
  endpoint: Pick<Endpoint, "key" | "address" | "port">,
): EndpointKey {
  const address = destinationOf(endpoint);
  if (address === endpoint.address) return endpoint.key;
  return formatHostPort(address, endpoint.port) as EndpointKey;
}

function frontendPlaces({ frontends }: LoopPart): ReadonlySet<EndpointKey> {
  return new Set(
    frontends.map(({ address, port }) => formatHostPort(address, port) as EndpointKey),
  );
}

/** A listener on `::` takes connections of both families. */
function leadsTo(endpoint: Pick<Endpoint, "address" | "port">, { hostname, port }: Place): boolean {
  if (endpoint.port !== port) return false;
  const address = destinationOf(endpoint);
  return hostname === address || hostname === "::" ||
    (hostname === "0.0.0.0" && !address.includes(":"));
}
