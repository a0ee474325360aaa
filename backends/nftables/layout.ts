/**
 * The desired table: the ServicePorts that it has, and what belongs to no Service. Pure except for its
 * own state.
 *
 * Elements are not stored. Those of a ServicePort are rendered from its plan when they are written, so
 * 10,000 ServicePorts take a few megabytes, and the cost of a change depends on its own size.
 *
 * @module
 */
import { CidrCover } from "../../lib/net/cidr_cover.ts";
import { isLoopback } from "../../lib/net/ip_address.ts";
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import { type Frontend, frontendsOf } from "../../lib/proxy/frontend.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { TableElements } from "../netfilter/nft/table_listing.ts";
import { chainObject } from "../netfilter/nft/nft_table.ts";
import {
  type ChainContext,
  chainElement,
  chainName,
  chainRules,
  DROP,
  LOCAL_OFFSET,
  REJECT_CHAIN,
  SOURCE_RANGES_CHAIN,
} from "./chain_spec.ts";
import type { NftablesFeatures, NftablesRenderOptions } from "./render_options.ts";
import {
  addressElements,
  chainOf,
  type EndpointOrder,
  foundOrder,
  foundSlots,
  frontendElements,
  type NumberedService,
  numberEndpoints,
  rangeText,
} from "./service_objects.ts";
import { pickableEndpoints, SlotAllocator } from "./slots.ts";

/** The desired ServicePorts, and which of them may differ from the applied ones. */
export class NftablesLayout implements ChainContext {
  readonly options: NftablesRenderOptions;
  readonly #plans = new Map<ServicePortKey, ServicePlan>();
  readonly #quarantined = new Map<ServicePortKey, Quarantined>();
  readonly #dirty = new Set<ServicePortKey>();
  /** The slots of ServicePorts with session affinity. */
  readonly slots = new SlotAllocator();
  /** The chains that choose an endpoint, and their numbers, by name. */
  readonly #chains = new Map<string, readonly KernelObject[]>();
  #shared: SharedPlan;

  constructor(shared: SharedPlan, options: NftablesRenderOptions) {
    this.options = options;
    this.#shared = shared;
  }

  /** ServicePorts that cannot be expressed, and those passed to {@linkcode quarantine}. */
  get quarantined(): readonly Quarantined[] {
    return [...this.#quarantined.values()];
  }

  /** The ServicePorts that may differ from the applied ones, including those no longer wanted. */
  get dirty(): ReadonlySet<ServicePortKey> {
    return this.#dirty;
  }

  /** The plans by which ServicePorts have objects. */
  get plans(): ReadonlyMap<ServicePortKey, ServicePlan> {
    return this.#plans;
  }

  plan(key: ServicePortKey): ServicePlan | undefined {
    return this.#plans.get(key);
  }

  /** Gives a ServicePort the objects of a plan, and takes it out of quarantine. */
  set(plan: ServicePlan): void {
    const { key } = plan;
    if (this.#plans.get(key) === plan) return;
    const problem = unsupported(plan, this.options.features);
    if (plan.affinityTimeoutSeconds === undefined || problem) this.slots.release(key);
    this.#dirty.add(key);
    if (problem) {
      this.#plans.delete(key);
      this.#quarantined.set(key, problem);
    } else {
      this.#quarantined.delete(key);
      this.#plans.set(key, plan);
    }
  }

  /** Removes the objects of a ServicePort. */
  delete(key: ServicePortKey): void {
    this.#quarantined.delete(key);
    if (this.#plans.delete(key)) this.#dirty.add(key);
    this.slots.release(key);
  }

  /** Removes the objects of a ServicePort that the kernel refused, until it is set again. */
  quarantine(item: Quarantined): void {
    this.delete(item.key);
    this.#quarantined.set(item.key, item);
  }

  /** What belongs to no Service. */
  get shared(): SharedPlan {
    return this.#shared;
  }

  get localTraffic(): SharedPlan["localTraffic"] {
    return this.#shared.localTraffic;
  }

  /** The addresses of the node or the ranges of Services changed; the detector never does. */
  setShared(shared: SharedPlan): void {
    this.#shared = shared;
  }

  /** Records that the desired state was applied. */
  settle(): void {
    this.#dirty.clear();
  }

  /**
   * Returns a ServicePort as it is wanted; `undefined` = it has no objects. Endpoints keep their numbers
   * if possible: those in `previous`, or, without it, those of another process in the `found` elements.
   */
  numbered(
    key: ServicePortKey,
    previous?: NumberedService,
    found?: TableElements,
  ): NumberedService | undefined {
    const plan = this.#plans.get(key);
    if (plan === undefined) return undefined;
    if (previous?.plan === plan) return previous;
    const slots = plan.affinityTimeoutSeconds === undefined ? undefined : this.slots.slotsOf(plan);
    const order: Partial<EndpointOrder> | undefined = previous?.order ??
      (found && foundOrder(plan, slots, found));
    return numberEndpoints(plan, order, slots);
  }

  /** Takes over how another process remembered the endpoints of a ServicePort, unless it has slots. */
  adoptSlots(plan: ServicePlan, found: TableElements): void {
    const { key, affinityTimeoutSeconds } = plan;
    if (affinityTimeoutSeconds === undefined || this.slots.has(key)) return;
    this.slots.adopt(key, foundSlots(plan, found));
  }

  /** Every object of a ServicePort. */
  *objectsOf(service: NumberedService): Generator<KernelObject> {
    for (const frontend of frontendsOf(service.plan)) {
      yield* this.frontendObjects(service, frontend);
    }
    yield* addressElements(service.plan);
  }

  /** The elements of a frontend, and the chain that chooses an endpoint, with its number. */
  frontendObjects(service: NumberedService, frontend: Frontend): readonly KernelObject[] {
    const elements = frontendElements(service, frontend);
    const spec = chainOf(service, frontend);
    if (spec === undefined) return elements;
    const name = chainName(spec);
    const chain = this.#chains.getOrInsertComputed(
      name,
      () =>
        [chainObject({ name, rules: chainRules(spec, this) }), chainElement(name)]
          .map((object) => ({ ...object, isShared: true })),
    );
    return [...elements, ...chain];
  }
}

/**
 * Returns the numbers of fixed chains, the ranges of Services, and the addresses of node ports if
 * these are not all of the node's. Loopback is left out unless requested; ::1 always, as IPv6 has
 * no route_localnet.
 */
export function sharedElements(
  { shared: { nodePortAddresses, serviceCidrs }, options }: Pick<
    NftablesLayout,
    "options" | "shared"
  >,
): readonly KernelObject[] {
  const { family, localhostNodePorts } = options;
  const allowsLoopback = family === "IPv4" && localhostNodePorts;
  const addresses = options.nodePortAddresses.kind === "all" ? [] : nodePortAddresses;
  return [
    ...[DROP, REJECT_CHAIN, SOURCE_RANGES_CHAIN].map(chainElement),
    ...new CidrCover(serviceCidrs).outermost.map((cidr) => ({
      kind: "service-cidrs",
      name: rangeText(cidr),
      text: "",
    })),
    ...addresses.filter((address) => allowsLoopback || !isLoopback(address))
      .map((name) => ({ kind: "node-port-ips", name, text: "" })),
  ];
}

/** Returns the reason why a ServicePort gets no rules; `undefined` = it gets rules. */
export function unsupported(
  plan: ServicePlan,
  { affinity }: NftablesFeatures,
): Quarantined | undefined {
  const { key, affinityTimeoutSeconds, internal, external, externalFromCluster } = plan;
  const isSticky = affinityTimeoutSeconds !== undefined;
  const counts = [internal, external, externalFromCluster]
    .map((verdict) => verdict.kind === "forward" ? verdict.endpoints.length : 0);
  // Numbers belong to one list, but slots to all lists together.
  const count = isSticky ? pickableEndpoints(plan).size : Math.max(...counts);
  if (isSticky && count > 0 && !affinity) {
    const reason = "Cannot express session affinity: the kernel lacks maps that rules can fill";
    return { key, reason };
  }
  if (count > LOCAL_OFFSET) {
    const reason =
      `Cannot choose among ${count} endpoints: the maps number ${LOCAL_OFFSET} of each ` +
      "Service at most";
    return { key, reason };
  }
  return undefined;
}
