/**
 * The desired table: which ServicePort owns which key. Pure except for its own state.
 *
 * Elements are not stored. Those of an entry are rendered from the plan of its ServicePort when
 * they are written, so 10,000 ServicePorts take a few megabytes, and the cost of a change depends
 * on its own size.
 *
 * @module
 */
import { CidrCover } from "../../lib/net/cidr_cover.ts";
import { isLoopback } from "../../lib/net/ip_address.ts";
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { SetIndex } from "../../lib/net/set_index.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { TableElements } from "../netfilter/nft/table_listing.ts";
import type { NftChain } from "../netfilter/nft/nft_objects.ts";
import { chainObject } from "../netfilter/nft/nft_table.ts";
import {
  baseChains,
  type ChainContext,
  chainElement,
  chainName,
  chainRules,
  type ChainSpec,
  DROP,
  LOCAL_OFFSET,
  REJECT_CHAIN,
  SOURCE_RANGES_CHAIN,
} from "./chain_spec.ts";
import {
  arrangeEntry,
  chainOf,
  claimsOf,
  elementsOf,
  type EndpointOrder,
  type Entry,
  type EntryId,
  foundSlots,
  rangeText,
} from "./entry.ts";
import type { NftablesFeatures, NftablesRenderOptions } from "./render_options.ts";
import { pickableEndpoints, SlotAllocator, type Slots } from "./slots.ts";

/** The desired entries, and which of them may differ from the applied ones. */
export class NftablesLayout {
  readonly options: NftablesRenderOptions;
  readonly #plans = new Map<ServicePortKey, ServicePlan>();
  readonly #claims = new SetIndex<EntryId, ServicePortKey>();
  readonly #quarantined = new Map<ServicePortKey, Quarantined>();
  readonly #dirty = new Set<EntryId>();
  /** The {@linkcode #plans} with session affinity. */
  readonly #sticky = new Set<ServicePortKey>();
  readonly #slots = new SlotAllocator();
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

  /** The entries that may differ from the applied ones, including entries no longer wanted. */
  get dirty(): ReadonlySet<EntryId> {
    return this.#dirty;
  }

  /** Every desired entry, in no order. */
  ids(): Iterable<EntryId> {
    return this.#claims.keys();
  }

  /** The plan by which a ServicePort has entries; `undefined` = it has none. */
  plan(key: ServicePortKey): ServicePlan | undefined {
    return this.#plans.get(key);
  }

  /** Gives a ServicePort the entries of a plan, and takes it out of quarantine. */
  set(plan: ServicePlan): void {
    const { key } = plan;
    const previous = this.#plans.get(key);
    if (previous === plan) return;
    const isSticky = plan.affinityTimeoutSeconds !== undefined;
    const problem = unsupported(plan, this.options.features);
    if (!isSticky || problem) this.#slots.release(key);
    if (problem !== undefined) {
      this.#takeAway(key);
      this.#quarantined.set(key, problem);
      return;
    }
    this.#quarantined.delete(key);
    this.#plans.set(key, plan);
    if (isSticky) this.#sticky.add(key);
    else this.#sticky.delete(key);
    this.#moveClaims(previous, plan);
  }

  /** Keeps entries that both plans need: thousands of ports may share one, and moving is slow. */
  #moveClaims(previous: ServicePlan | undefined, plan: ServicePlan): void {
    const before = previous && new Set(claimsOf(previous));
    for (const id of claimsOf(plan)) {
      if (!before?.delete(id)) this.#claims.add(id, plan.key);
      this.#dirty.add(id);
    }
    for (const id of before ?? []) this.#remove(plan.key, id);
  }

  /** Removes the entries of a ServicePort. */
  delete(key: ServicePortKey): void {
    this.#takeAway(key);
    this.#slots.release(key);
  }

  #takeAway(key: ServicePortKey): void {
    this.#quarantined.delete(key);
    const plan = this.#plans.get(key);
    if (plan === undefined) return;
    this.#plans.delete(key);
    this.#sticky.delete(key);
    for (const id of claimsOf(plan)) this.#remove(key, id);
  }

  /** Removes the entries of a ServicePort that the kernel refused, until it is set again. */
  quarantine(item: Quarantined): void {
    this.delete(item.key);
    this.#quarantined.set(item.key, item);
  }

  /** What belongs to no Service. */
  get shared(): SharedPlan {
    return this.#shared;
  }

  /** The ServicePort that an entry belongs to. */
  ownerOf(id: EntryId): ServicePortKey | undefined {
    return this.#claims.first(id);
  }

  /** The addresses of the node or the ranges of Services changed; the detector never does. */
  setShared(shared: SharedPlan): void {
    this.#shared = shared;
  }

  /** Records that the desired state was applied. */
  settle(): void {
    this.#dirty.clear();
  }

  /** Returns the content of a key; `undefined` = none. Endpoints keep their numbers if possible. */
  entry(id: EntryId, previous: Entry | undefined): Entry | undefined {
    const plan = this.#planAt(id);
    if (plan !== undefined && previous?.plan === plan) return previous;
    return plan && this.#arrange(id, plan, previous);
  }

  /** As {@linkcode entry}, with the endpoints in a given order. */
  orderedEntry(id: EntryId, previous: EndpointOrder | undefined): Entry | undefined {
    const plan = this.#planAt(id);
    return plan && this.#arrange(id, plan, previous);
  }

  #planAt(id: EntryId): ServicePlan | undefined {
    const key = this.#claims.first(id);
    return key === undefined ? undefined : this.#plans.get(key);
  }

  #arrange(id: EntryId, plan: ServicePlan, previous: EndpointOrder | undefined): Entry {
    return arrangeEntry(id, plan, { previous, slots: this.slots(plan) });
  }

  /**
   * Takes over how another process remembered the endpoints of ServicePorts, in short steps. Those
   * that have slots keep them.
   */
  *adoptSlots(found: TableElements): Generator<void, void> {
    for (const key of this.#sticky) {
      yield;
      const plan = this.#plans.get(key);
      if (plan === undefined || this.#slots.has(key)) continue;
      const own = claimsOf(plan).filter((id) => this.#claims.first(id) === key);
      this.#slots.adopt(key, foundSlots(own, plan, found));
    }
  }

  /** As {@linkcode adoptSlots}, for one ServicePort. */
  setSlots(key: ServicePortKey, slots: Slots): void {
    this.#slots.adopt(key, slots);
  }

  /** Returns the slots of a ServicePort's endpoints; `undefined` = no affinity. */
  slots(plan: ServicePlan): Slots | undefined {
    return plan.affinityTimeoutSeconds === undefined ? undefined : this.#slots.slotsOf(plan);
  }

  /** The elements that belong to no Service. */
  sharedElements(): readonly KernelObject[] {
    return sharedElements(this.#shared, this.options);
  }

  /** The permanent chains. Always the same objects. */
  baseChains(): readonly NftChain[] {
    return baseChains(this.#context());
  }

  /** Returns the rules of a chain that chooses an endpoint. They never change. */
  chainRules(spec: ChainSpec): readonly string[] {
    return chainRules(spec, this.#context());
  }

  /** Every object of an entry: its elements, and the chain that chooses an endpoint, with its number. */
  objectsOf(entry: Entry): readonly KernelObject[] {
    const spec = chainOf(entry);
    const elements = elementsOf(entry);
    return spec === undefined ? elements : [...elements, ...this.#chainObjects(spec)];
  }

  #chainObjects(spec: ChainSpec): readonly KernelObject[] {
    const name = chainName(spec);
    return this.#chains.getOrInsertComputed(name, () => {
      const objects = [
        chainObject({ name, rules: this.chainRules(spec) }),
        chainElement(name),
      ];
      return objects.map((object) => ({ ...object, isShared: true }));
    });
  }

  #remove(key: ServicePortKey, id: EntryId): void {
    this.#claims.delete(id, key);
    this.#dirty.add(id);
  }

  #context(): ChainContext {
    return { options: this.options, localTraffic: this.#shared.localTraffic };
  }
}

/**
 * Returns the numbers of fixed chains, the ranges of Services, and the addresses of node ports if
 * these are not all of the node's. Loopback is left out unless requested; ::1 always, as IPv6 has
 * no route_localnet.
 */
export function sharedElements(
  { nodePortAddresses, serviceCidrs }: SharedPlan,
  options: NftablesRenderOptions,
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
