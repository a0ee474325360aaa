/**
 * From informers to the families' pipelines: who is told of which object, and when the first sync may run.
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
import type { Clock, Timer } from "../../os/clock.ts";
import type { FamilyProxy } from "./family_proxy.ts";
import { type FollowedObjects, serviceSubscriptions } from "./service_subscriptions.ts";

/** How long the first sync waits for the own Node once everything else is known. */
const NODE_WAIT_MS = 5000;

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
  /** Called once, when the first sync has been let through. */
  readonly onReady: () => void;
  /** Called for each object that comes, changes or goes: syncs will follow. */
  readonly onWork: () => void;
}

/**
 * Routes objects to families. Holds the first sync back until Services and endpoints are complete, if
 * not told otherwise.
 */
export class ObjectRouter {
  readonly #options: ObjectRouterOptions;
  readonly #clock: Clock;
  #nodeWait: Timer | undefined;
  #ready = false;

  constructor({ clock }: { readonly clock: Clock }, options: ObjectRouterOptions) {
    this.#clock = clock;
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

  /** Forgets the wait for the Node. */
  stop(): void {
    this.#nodeWait?.cancel();
  }

  #follow<T extends KubeObject>(
    spec: KindSpec<T>,
    take: (previous: T | undefined, current: T | undefined) => void,
  ): void {
    const { informers, families, onWork, servesEarly = false } = this.#options;
    const changed = (previous: T | undefined, current: T | undefined) => {
      onWork();
      take(previous, current);
      if (servesEarly && !this.#ready) { for (const family of families) family.openEarly(); }
    };
    informers.subscribe(spec, serviceSubscriptions(this.#options).get(spec), {
      onAdd: (object) => changed(undefined, object),
      onUpdate: (previous, current) => changed(previous, current),
      onDelete: (object) => changed(object, undefined),
      onSynced: () => this.#checkReady(),
    });
  }

  #checkReady(): void {
    const { informers } = this.#options;
    if (this.#ready || !informers.synced([SERVICE, ENDPOINT_SLICE, ENDPOINTS])) return;
    if (informers.synced([NODE])) return this.#open();
    this.#nodeWait ??= this.#clock.setTimer(NODE_WAIT_MS, () => this.#open());
  }

  #open(): void {
    if (this.#ready) return;
    this.#ready = true;
    this.#nodeWait?.cancel();
    for (const family of this.#options.families) family.open();
    this.#options.onReady();
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
