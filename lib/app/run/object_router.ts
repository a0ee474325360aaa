/**
 * From informers to the families' pipelines: who is told of which object, and when the first sync may run.
 *
 * @module
 */
import type {
  Endpoints,
  EndpointSlice,
  KubeObject,
  Node,
  Service,
  ServiceCidr,
} from "../../api/objects.ts";
import { SERVICE_NAME_LABEL } from "../../api/service_name_label.ts";
import { Informer, type Informers } from "../../kube/informer.ts";
import { type Cidr, cidrFamilyOf, tryParseCidr } from "../../net/cidr.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";

/** How long the first sync waits for the own Node once everything else is known. */
const NODE_WAIT_MS = 5000;

/** Whom the router tells. */
interface ObjectRouterOptions {
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
  readonly informers: Informers;
  readonly #options: ObjectRouterOptions;
  readonly #clock: Clock;
  #nodeWait: Timer | undefined;
  #ready = false;

  constructor({ clock }: { readonly clock: Clock }, options: ObjectRouterOptions) {
    this.#clock = clock;
    this.#options = options;
    const { families } = options;
    this.informers = {
      services: this.#informer<Service>((previous, current) => {
        for (const family of families) family.onService(previous, current);
      }),
      endpointSlices: this.#informer<EndpointSlice>((previous, current) => {
        for (const family of families) {
          if (previous && !(current && sameService(previous, current))) {
            family.onEndpointSlice(previous, "delete");
          }
          if (current) family.onEndpointSlice(current, "set", { previous });
        }
      }),
      endpoints: this.#informer<Endpoints>((previous, current) => {
        const endpoints = current ?? previous!;
        const verb = current ? "set" : "delete";
        for (const family of families) family.onEndpoints(endpoints, verb, { previous });
      }),
      nodes: this.#informer<Node>((_, current) => {
        if (current) options.onNode(current);
        else options.onNodeDeleted();
      }),
      serviceCidrs: this.#informer<ServiceCidr>(() => this.#tellServiceCidrs()),
    };
    if (options.serviceCidrs.length > 0) this.#tellServiceCidrs();
  }

  /** Forgets the wait for the Node. */
  stop(): void {
    this.#nodeWait?.cancel();
  }

  #informer<T extends KubeObject>(
    tell: (previous: T | undefined, current: T | undefined) => void,
  ): Informer<T> {
    const { families, onWork, servesEarly = false } = this.#options;
    const changed = (previous: T | undefined, current: T | undefined) => {
      onWork();
      tell(previous, current);
      if (servesEarly && !this.#ready) { for (const family of families) family.openEarly(); }
    };
    return new Informer<T>({
      onAdd: (object) => changed(undefined, object),
      onUpdate: (previous, current) => changed(previous, current),
      onDelete: (object) => changed(object, undefined),
      onSynced: () => this.#checkReady(),
    });
  }

  #checkReady(): void {
    const { services, endpointSlices, endpoints, nodes } = this.informers;
    if (this.#ready || !services.synced || !endpointSlices.synced || !endpoints.synced) return;
    if (nodes.synced) return this.#open();
    this.#nodeWait ??= this.#clock.setTimer(NODE_WAIT_MS, () => this.#open());
  }

  #open(): void {
    if (this.#ready) return;
    this.#ready = true;
    this.#nodeWait?.cancel();
    for (const family of this.#options.families) family.open();
    this.#options.onReady();
  }

  #tellServiceCidrs(): void {
    const { families, serviceCidrs: given } = this.#options;
    const fromApi = [...this.informers.serviceCidrs.values()]
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
