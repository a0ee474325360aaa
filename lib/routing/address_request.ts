import { EDGE_ANNOTATIONS } from "../api/service_annotations.ts";
import {
  ADDRESSES_ANNOTATION,
  POOL_ANNOTATION,
  type RoutedService,
  SHARING_KEY_ANNOTATION,
} from "../api/kinds/routed_service.ts";
import { isExternalLocal } from "../api/kube_router_annotations.ts";
import {
  IP_FAMILIES,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  tryParseIpAddress,
} from "../net/ip_address.ts";
import type { Labels } from "../policy/label_selector.ts";
import { namespacedNameOf, type ServiceKey, serviceKey } from "../proxy/service_port_name.ts";
import type { RoutingSettings } from "./routing_settings.ts";

/** The request of a Service to the allocator. */
export interface AddressRequest {
  readonly key: ServiceKey;
  readonly namespace: string;
  /** RFC 3339 in whole seconds and UTC, so that texts sort as times do; may be empty. */
  readonly createdAt: string;
  readonly labels: Labels;
  /** A Service of another controller: its addresses are not given to others. */
  readonly isForeign: boolean;
  /** One address of each; none if the Service is no load balancer any more. */
  readonly families: readonly IpFamily[];
  /** Whether one family is enough. */
  readonly prefersDualStack: boolean;
  readonly requested: Readonly<Partial<Record<IpFamily, IpAddress>>>;
  /** Name of the requested pool. */
  readonly pool?: string;
  readonly sharing?: SharingTerms;
  /** E.g. `TCP/80`. Without those for TCP if server names tell Services apart there. */
  readonly ports: readonly string[];
  readonly current: readonly IpAddress[];
  /** Host names of the status, which another controller wrote. */
  readonly hostnames: readonly string[];
  /** The reason why the requested addresses cannot be read. */
  readonly invalid?: string;
}

/** When Services may share an address: all of it has to be equal, and the ports different. */
export interface SharingTerms {
  /** As given by the Service. */
  readonly key: string;
  readonly text: string;
}

/** A tenant chooses the text, and it goes into events and the status. */
export function shorten(text: string): string {
  return text.length <= 60 ? text : `${text.slice(0, 60)}…`;
}

/**
 * Reads a Service. Returns `undefined` if it concerns no allocator: it is no load balancer, and its
 * status has no address.
 */
export function addressRequestOf(
  service: RoutedService,
  settings: Pick<RoutingSettings, "loadBalancerClasses" | "defaultLoadBalancerClass">,
): AddressRequest | undefined {
  const { metadata, spec, status } = service;
  const ingress = status?.loadBalancer?.ingress ?? [];
  const isLoadBalancer = spec.type === "LoadBalancer";
  if (!isLoadBalancer && ingress.length === 0) return undefined;
  const name = namespacedNameOf(service);
  const current = ingress.flatMap(({ ip }) => tryParseIpAddress(ip ?? "") ?? []);
  const pool = metadata.annotations?.[POOL_ANNOTATION]?.trim();
  const hasNames = metadata.annotations?.[EDGE_ANNOTATIONS.sni.name] !== undefined;
  return {
    key: serviceKey(name),
    namespace: name.namespace,
    createdAt: metadata.creationTimestamp ?? "",
    labels: metadata.labels ?? {},
    isForeign: foreignClass(service, settings) !== undefined,
    families: isLoadBalancer ? familiesOf(spec.ipFamilies) : [],
    prefersDualStack: spec.ipFamilyPolicy === "PreferDualStack",
    ...requestedAddresses(service),
    ...(pool && { pool }),
    ...sharingOf(service, name.namespace),
    ports: (spec.ports ?? []).map(({ protocol, port }) => `${protocol ?? "TCP"}/${port}`)
      .filter((port) => !hasNames || !port.startsWith("TCP/")),
    current: [...new Set(current)],
    hostnames: ingress.flatMap(({ hostname }) => hostname || []),
  };
}

/** Returns why another controller gives a Service addresses, in words; `undefined` = none does. */
export function foreignClass(
  { spec: { type, loadBalancerClass: found } }: Pick<RoutedService, "spec">,
  { loadBalancerClasses: classes, defaultLoadBalancerClass: isDefault }: Pick<
    RoutingSettings,
    "loadBalancerClasses" | "defaultLoadBalancerClass"
  >,
): string | undefined {
  if (type !== "LoadBalancer") return undefined;
  if (found === undefined ? isDefault : classes.includes(found)) return undefined;
  return (found === undefined ? "it has no class" : `its class is '${shorten(found)}'`) +
    `, and kube-relay gives addresses to class ${classes.join(", ")}` +
    (isDefault ? ", and without a class" : "");
}

function familiesOf(families: readonly string[] = []): readonly IpFamily[] {
  const known = families.flatMap((family) => IP_FAMILIES.find((each) => each === family) ?? []);
  // API servers before dual stack leave the field out.
  return known.length === 0 ? ["IPv4"] : [...new Set(known)];
}

/** The annotation counts instead of the field, which the API has deprecated. */
function requestedAddresses(
  { metadata, spec }: RoutedService,
): Pick<AddressRequest, "requested" | "invalid"> {
  const annotation = metadata.annotations?.[ADDRESSES_ANNOTATION];
  const source = annotation === undefined ? "spec.loadBalancerIP" : ADDRESSES_ANNOTATION;
  const texts = (annotation ?? spec.loadBalancerIP ?? "").split(",").map((text) => text.trim())
    .filter((text) => text !== "");
  const requested: Partial<Record<IpFamily, IpAddress>> = {};
  const families = familiesOf(spec.ipFamilies);
  for (const text of texts) {
    const address = tryParseIpAddress(text);
    if (address === undefined) {
      return {
        requested: {},
        invalid: `${source}: expected an IP address, found '${shorten(text)}'`,
      };
    }
    const family = ipFamilyOf(address);
    if (!families.includes(family)) {
      const invalid = `${source}: the Service has no ${family}, so it cannot have ${address}; ` +
        `spec.ipFamilies is ${families.join(", ")}`;
      return { requested: {}, invalid };
    }
    if (requested[family] !== undefined && requested[family] !== address) {
      const invalid =
        `${source}: expected one address of ${family}, found ${requested[family]} and ` +
        address;
      return { requested: {}, invalid };
    }
    requested[family] = address;
  }
  return { requested };
}

/**
 * Services share inside their namespace only: otherwise, a tenant could get ports of another
 * tenant's address. With policy Local, both need the same endpoints, because the node that has the
 * address has to have an endpoint of each.
 */
function sharingOf(
  { metadata, spec }: RoutedService,
  namespace: string,
): Pick<AddressRequest, "sharing"> {
  const key = metadata.annotations?.[SHARING_KEY_ANNOTATION];
  if (!key) return {};
  const endpoints = isExternalLocal({ metadata, spec })
    ? Object.entries(spec.selector ?? {}).sort(([left], [right]) => left < right ? -1 : 1)
    : "Cluster";
  return { sharing: { key, text: JSON.stringify([namespace, key, endpoints]) } };
}
