import type { RoutedService } from "../api/kinds/routed_service.ts";
import { ADVERTISE_ANNOTATIONS, parseSwitch } from "../api/kube_router_annotations.ts";
import type { IpAddress } from "../net/ip_address.ts";
import type { ServicePlan } from "../proxy/service_plan.ts";
import type { AdvertisedKind } from "./routing_settings.ts";

/** The kinds of addresses of a Service. */
export type ServiceAddressKind = Exclude<AdvertisedKind, "podCidrs" | "serviceRanges">;

/** An address of a Service. */
export interface ServiceAddress {
  readonly address: IpAddress;
  readonly kind: ServiceAddressKind;
  /** The reason why this node does not serve it. Absent = it does. */
  readonly obstacle?: string;
  /** With policy Local: the nodes with a ready endpoint. @default {every node} */
  readonly endpointNodes?: ReadonlySet<string>;
}

/** A Service, as far as its addresses are announced. */
export interface AnnouncedService {
  readonly addresses: readonly ServiceAddress[];
  /** Overrides the configuration. */
  readonly switches: Readonly<Partial<Record<ServiceAddressKind, boolean>>>;
}

/**
 * Returns the addresses of a Service. `plans` are those of all its ports, of both families. An
 * address counts as served if any of its ports is.
 */
export function announcedServiceOf(
  plans: readonly ServicePlan[],
  annotations: RoutedService["metadata"]["annotations"],
): AnnouncedService {
  const addresses = new Map<string, ServiceAddress>();
  for (const plan of plans) {
    for (const found of addressesOf(plan)) {
      const key = `${found.kind} ${found.address}`;
      const known = addresses.get(key);
      if (!known || known.obstacle !== undefined && found.obstacle === undefined) {
        addresses.set(key, found);
      }
    }
  }
  return { addresses: [...addresses.values()], switches: switchesOf(annotations) };
}

function addressesOf(plan: ServicePlan): readonly ServiceAddress[] {
  const internal = serving(plan, "internal");
  const external = serving(plan, "external");
  return [
    { address: plan.clusterIp, kind: "clusterIps", ...internal },
    ...plan.externalIps.map((address) => ({ address, kind: "externalIps" as const, ...external })),
    ...plan.loadBalancerVips.map((address) => ({
      address,
      kind: "loadBalancerIps" as const,
      ...external,
    })),
  ];
}

/**
 * With policy Local, only ready endpoints count, although terminating ones still serve: the network
 * needs time to learn of it, and until then the traffic that arrives is served.
 */
function serving(
  plan: ServicePlan,
  traffic: "internal" | "external",
): Pick<ServiceAddress, "obstacle" | "endpointNodes"> {
  const isLocal = plan[`${traffic}TrafficPolicy`] === "Local";
  if (!isLocal) {
    const isServed = plan[traffic].kind === "forward";
    return isServed ? {} : { obstacle: "the Service has no usable endpoint" };
  }
  const ready = plan.endpoints.filter((endpoint) => endpoint.ready);
  const endpointNodes = new Set(ready.flatMap(({ nodeName }) => nodeName ?? []));
  return ready.some((endpoint) => endpoint.isLocal)
    ? { endpointNodes }
    : { endpointNodes, obstacle: "policy Local, and no ready endpoint on this node" };
}

function switchesOf(
  annotations: RoutedService["metadata"]["annotations"],
): AnnouncedService["switches"] {
  const switches: Partial<Record<ServiceAddressKind, boolean>> = {};
  for (const kind of ["clusterIps", "externalIps", "loadBalancerIps"] as const) {
    const value = parseSwitch(annotations?.[ADVERTISE_ANNOTATIONS[kind]] ?? "");
    if (value !== undefined) switches[kind] = value;
  }
  return switches;
}
