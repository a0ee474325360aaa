/**
 * From informers to the families' pipelines: who is told of which object.
 *
 * @module
 */
import type { KindSpec, KubeObject } from "../../api/kind.ts";
import { ENDPOINT_SLICE, type EndpointSlice } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../../api/kinds/endpoints.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { SERVICE_CIDR } from "../../api/kinds/service_cidr.ts";
import { SERVICE_NAME_LABEL } from "../../api/labels.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import type { FamilyProxy } from "./family_proxy.ts";
import { type FollowedObjects, serviceSubscriptions } from "./service_subscriptions.ts";

/** Which objects are followed, and who takes them. */
interface ObjectRouterOptions extends FollowedObjects {
  readonly informers: InformerSet;
  readonly families: readonly FamilyProxy[];
  /** Ranges given on the command line; they stand in for the API's ServiceCIDRs. */
  readonly serviceCidrs: readonly Cidr[];
  /** Called for each state of the own Node; what was known stays when it is deleted. */
  readonly onNode: (node: Node) => void;
  /**
   * Whether objects may be served as they come, since each comes with what it needs.
   * @default {false: of half a cluster rules would be wrong}
   */
  readonly servesEarly?: boolean;
  /** Called when the own Node was deleted. */
  readonly onNodeDeleted: () => void;
}

/** Routes objects to families. */
export class ObjectRouter {
  readonly #options: ObjectRouterOptions;

  constructor(options: ObjectRouterOptions) {
    this.#options = options;
    const { families } = options;
    this.#follow(SERVICE, (previous, current) => {
      for (const family of families) family.onService(previous, current);
    });
    this.#follow(ENDPOINT_SLICE, (previous, current) => {
      for (const family of families) {
        if (previous && !(current && sameService(previous, current))) {
          family.onEndpointSlice(previous, "delete");
        }
        if (current) family.onEndpointSlice(current, "set", { previous });
      }
    });
    this.#follow(ENDPOINTS, (previous, current) => {
      const endpoints = current ?? previous!;
      const verb = current ? "set" : "delete";
      for (const family of families) family.onEndpoints(endpoints, verb, { previous });
    });
    this.#follow(NODE, (_, current) => {
      if (current) options.onNode(current);
      else options.onNodeDeleted();
    });
    this.#follow(SERVICE_CIDR, () => this.#takeServiceCidrs());
    if (options.serviceCidrs.length > 0) this.#takeServiceCidrs();
  }

  #follow<T extends KubeObject>(
    spec: KindSpec<T>,
    take: (previous: T | undefined, current: T | undefined) => void,
  ): void {
    const { informers, families, servesEarly = false } = this.#options;
    const changed = (previous: T | undefined, current: T | undefined) => {
      take(previous, current);
      if (servesEarly) { for (const family of families) family.openEarly(); }
    };
    informers.subscribe(spec, serviceSubscriptions(this.#options).get(spec), {
      onAdd: (object) => changed(undefined, object),
      onUpdate: (previous, current) => changed(previous, current),
      onDelete: (object) => changed(object, undefined),
      onSynced: () => {},
    });
  }

  #takeServiceCidrs(): void {
    const { families, serviceCidrs: given } = this.#options;
    const fromApi = [...this.#options.informers.of(SERVICE_CIDR).values()]
      .flatMap(({ spec }) => spec.cidrs ?? [])
      .map(tryParseCidr)
      .filter((cidr) => cidr !== undefined);
    const cidrs = [...new Set(given.length > 0 ? given : fromApi)].sort();
    for (const family of families) {
      family.onServiceCidrs(cidrs.filter((cidr) => cidrFamilyOf(cidr) === family.family));
    }
  }
}

/** A slice that is given to another Service, as an editor of manifests may do, leaves the first. */
function sameService(left: EndpointSlice, right: EndpointSlice): boolean {
  return left.metadata.labels?.[SERVICE_NAME_LABEL] === right.metadata.labels?.[SERVICE_NAME_LABEL];
}
