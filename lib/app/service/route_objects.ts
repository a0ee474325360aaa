import type { KindSpec, KubeObject } from "../../api/kind.ts";
import { ENDPOINT_SLICE, type EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../../api/kinds/endpoints.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { SERVICE_CIDR } from "../../api/kinds/service_cidr.ts";
import { SERVICE_NAME_LABEL } from "../../api/labels.ts";
import { changeHandler } from "../../kube/informer.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import type { FamilyProxy } from "./family_proxy.ts";
import { type FollowedObjects, serviceSubscriptions } from "./service_subscriptions.ts";

/** The followed objects and their receivers. */
interface RouteOptions extends FollowedObjects {
  readonly informers: InformerSet;
  readonly families: readonly FamilyProxy[];
  /** Ranges from the command line; they replace the API's ServiceCIDRs. */
  readonly serviceCidrs: readonly Cidr[];
  /** Called for each state of the own Node; after a deletion the last state remains. */
  readonly onNode: (node: Node) => void;
  /**
   * Whether objects may be served as they arrive, since each is complete. @default {false: rules of
   * half a cluster would be wrong}
   */
  readonly servesEarly?: boolean;
  /** Called when the own Node was deleted. */
  readonly onNodeDeleted: () => void;
}

/** Passes objects from the informers to the pipelines of the families. */
export function routeObjects(options: RouteOptions): void {
  const { families } = options;
  follow(options, SERVICE, (previous, current) => {
    for (const family of families) family.onService(previous, current);
  });
  follow(options, ENDPOINT_SLICE, (previous, current) => {
    for (const family of families) {
      if (previous && !(current && sameService(previous, current))) {
        family.onEndpointSlice(previous, "delete");
      }
      if (current) family.onEndpointSlice(current, "set", { previous });
    }
  });
  follow(options, ENDPOINTS, (previous, current) => {
    const endpoints = current ?? previous!;
    const verb = current ? "set" : "delete";
    for (const family of families) family.onEndpoints(endpoints, verb, { previous });
  });
  follow(options, NODE, (_, current) => {
    if (current) options.onNode(current);
    else options.onNodeDeleted();
  });
  follow(options, SERVICE_CIDR, () => passServiceCidrs(options));
  if (options.serviceCidrs.length > 0) passServiceCidrs(options);
}

function follow<T extends KubeObject>(
  options: RouteOptions,
  spec: KindSpec<T>,
  take: (previous: T | undefined, current: T | undefined) => void,
): void {
  const { informers, families, servesEarly = false } = options;
  const handler = changeHandler<T>((previous, current) => {
    take(previous, current);
    if (servesEarly) { for (const family of families) family.openEarly(); }
  });
  informers.subscribe(spec, serviceSubscriptions(options).get(spec), handler);
}

function passServiceCidrs({ informers, families, serviceCidrs: given }: RouteOptions): void {
  const fromApi = [...informers.of(SERVICE_CIDR).values()]
    .flatMap(({ spec }) => spec.cidrs ?? [])
    .map(tryParseCidr)
    .filter((cidr) => cidr !== undefined);
  const cidrs = [...new Set(given.length > 0 ? given : fromApi)].sort();
  for (const family of families) {
    family.onServiceCidrs(cidrs.filter((cidr) => cidrFamilyOf(cidr) === family.family));
  }
}

/** An edited manifest may move a slice to another Service; the slice then leaves the first one. */
function sameService(left: EndpointSlice, right: EndpointSlice): boolean {
  return left.metadata.labels?.[SERVICE_NAME_LABEL] === right.metadata.labels?.[SERVICE_NAME_LABEL];
}
