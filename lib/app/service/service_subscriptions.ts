import type { KindSpec } from "../../api/kind.ts";
import { ENDPOINT_SLICE } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../../api/kinds/endpoints.ts";
import { NODE } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { SERVICE_CIDR } from "../../api/kinds/service_cidr.ts";
import { HEADLESS_LABEL, SERVICE_PROXY_NAME_LABEL } from "../../api/labels.ts";
import type { ControllerKind } from "../../engine/controller.ts";
import { type InformerSet, type ListOptions, named } from "../../kube/informer_set.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";

/** The kinds that Services are planned from. */
export const SERVICE_KINDS: readonly KindSpec[] = [
  ...[SERVICE, ENDPOINT_SLICE, ENDPOINTS, NODE, SERVICE_CIDR],
];

/** These kinds, and how long the first sync in a mode waits for each. */
export function followedKinds(mode: BackendMode): readonly ControllerKind[] {
  return [
    ...[{ spec: SERVICE }, { spec: ENDPOINT_SLICE }, { spec: ENDPOINTS }],
    { spec: NODE, waitMs: 5000 },
    { spec: SERVICE_CIDR, waitMs: MODE_TRAITS[mode].serviceRangesWaitMs },
  ];
}

/** Selects every Node, in modes that make Service addresses local: a Service may not take theirs. */
export const ALL_NODES: ListOptions = { optionalOn: [403, 404] };

const NOT_HEADLESS: ListOptions = { labelSelector: `!${HEADLESS_LABEL}` };

/**
 * Each kind, and which of its objects are followed. `endpointsFallback`: whether Endpoints are followed
 * besides EndpointSlices, for Services without a slice. A server without EndpointSlices is always served
 * by its Endpoints.
 */
export function serviceSubscriptions(
  nodeName: string,
  endpointsFallback: boolean,
): ReadonlyMap<KindSpec, ListOptions> {
  return new Map<KindSpec, ListOptions>([
    [SERVICE, {
      labelSelector: `!${SERVICE_PROXY_NAME_LABEL}`,
      // A field selector of Services since 1.31.
      fieldSelector: "spec.clusterIP!=None",
      fieldSelectorMayBeUnknown: true,
    }],
    [ENDPOINT_SLICE, { ...NOT_HEADLESS, optionalOn: [404] }],
    [ENDPOINTS, {
      ...NOT_HEADLESS,
      // An identity that may not read Endpoints gets Services with slices, which is most of them.
      ...(endpointsFallback ? { optionalOn: [403] } : { onlyWithout: ENDPOINT_SLICE }),
    }],
    [NODE, { ...named(nodeName), optionalOn: [403, 404] }],
    [SERVICE_CIDR, { optionalOn: [403, 404] }],
  ]);
}

/** The ranges of cluster IPs of a family, sorted: those given, or else the API's ServiceCIDRs. */
export function serviceCidrsOf(
  informers: InformerSet,
  given: readonly Cidr[],
  family: IpFamily,
): readonly Cidr[] {
  const fromApi = [...informers.of(SERVICE_CIDR).values()]
    .flatMap(({ spec }) => spec.cidrs ?? [])
    .map(tryParseCidr)
    .filter((cidr) => cidr !== undefined);
  const cidrs = new Set(given.length > 0 ? given : fromApi);
  return [...cidrs].filter((cidr) => cidrFamilyOf(cidr) === family).sort();
}
