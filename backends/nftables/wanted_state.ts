import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { TableElements } from "../netfilter/nft/table_listing.ts";
import type { NftChain } from "../netfilter/nft/nft_objects.ts";
import { chainElement, chainName, FIRST_NUMBER, LOCAL_OFFSET } from "./chain_spec.ts";
import { type EntryId, isNodePort, keyOfEntry } from "./entry_id.ts";
import type { ContainerName, Element } from "./containers.ts";
import { chainOf, elementsOf, type EndpointOrder, type Entry } from "./entry.ts";
import type { NftablesLayout } from "./layout.ts";
import { slotText } from "./slots.ts";

/** A desired element. */
export interface WantedElement {
  /** Absent in sets. */
  readonly value: string;
  /** Absent where it belongs to no Service. */
  readonly owner: ServicePortKey | undefined;
}

/** The desired content of the table. */
export interface WantedState {
  readonly elements: ReadonlyMap<ContainerName, ReadonlyMap<string, WantedElement>>;
  readonly chains: ReadonlyMap<string, NftChain>;
  /** The owner of a frontend, e.g. of `10.96.0.1 . tcp . 80` or `tcp . 30080`. */
  readonly frontends: ReadonlyMap<string, ServicePortKey>;
}

/** The known order of endpoints. */
export interface WantedStateContext {
  /** The written order; entries without one follow the plan. `undefined` = unknown. */
  readonly orders: ReadonlyMap<EntryId, EndpointOrder> | undefined;
  /** The elements found, whose order is used if none is known. */
  readonly found: TableElements | undefined;
}

/** The placeholder for a number without an endpoint. */
const NO_ENDPOINT: Pick<Endpoint, "key"> = { key: "" as EndpointKey };

/** Collects the desired content, in short steps. */
export function* wantedState(
  layout: NftablesLayout,
  context: WantedStateContext,
): Generator<void, WantedState> {
  if (context.orders === undefined && context.found) yield* layout.adoptSlots(context.found);
  const state = new PendingState(layout);
  for (const chain of layout.baseChains()) state.chains.set(chain.name, chain);
  for (const element of layout.sharedElements()) state.add(element, undefined);
  for (const id of layout.ids()) {
    yield;
    const entry = layout.orderedEntry(id, orderOf(id, layout, context));
    if (entry) state.addEntry(entry);
  }
  return state;
}

class PendingState implements WantedState {
  readonly elements = new Map<ContainerName, Map<string, WantedElement>>();
  readonly chains = new Map<string, NftChain>();
  readonly frontends = new Map<string, ServicePortKey>();
  readonly #layout: NftablesLayout;

  constructor(layout: NftablesLayout) {
    this.#layout = layout;
  }

  add({ container, key, value = "" }: Element, owner: ServicePortKey | undefined): void {
    let elements = this.elements.get(container);
    if (elements === undefined) this.elements.set(container, elements = new Map());
    elements.set(key, { value, owner });
  }

  addEntry(entry: Entry): void {
    const { id, plan: { key } } = entry;
    this.frontends.set(keyOfEntry(id), key);
    for (const element of elementsOf(entry)) this.add(element, key);
    const spec = chainOf(entry);
    if (spec === undefined) return;
    const name = chainName(spec);
    if (this.chains.has(name)) return;
    this.chains.set(name, { name, rules: this.#layout.chainRules(spec) });
    this.add(chainElement(name), undefined);
  }
}

function orderOf(
  id: EntryId,
  layout: NftablesLayout,
  { orders, found }: WantedStateContext,
): EndpointOrder | undefined {
  if (orders) return orders.get(id);
  const entry = found && layout.orderedEntry(id, undefined);
  return entry && foundOrder(entry, found);
}

/**
 * Returns the order of endpoints in the elements that were found; a number without an element has
 * no owner.
 */
function foundOrder(entry: Entry, found: TableElements): EndpointOrder {
  const { id, main, local, plan } = entry;
  const kind = plan.affinityTimeoutSeconds === undefined ? "endpoints" : "choices";
  const container: ContainerName = isNodePort(id) ? `node-port-${kind}` : kind;
  const endpoints = [...main, ...local];
  const byValue = new Map<string, Endpoint>();
  for (const element of elementsOf(entry)) {
    if (element.container !== container) continue;
    const endpoint = endpoints[byNumber(element.key, main.length)];
    if (endpoint) byValue.set(element.value ?? "", endpoint);
  }
  const values = found.get(container);
  const inOrder = (offset: number, count: number) =>
    Array.from({ length: count }, (_, index) => {
      const number = slotText(FIRST_NUMBER + offset + index);
      return byValue.get(values?.get(`${keyOfEntry(id)} . ${number}`) ?? "") ?? NO_ENDPOINT;
    });
  return { main: inOrder(0, main.length), local: inOrder(LOCAL_OFFSET, local.length) };
}

/** Returns the index of an endpoint in both lists together, by the number at the end of a key. */
function byNumber(key: string, mainCount: number): number {
  const number = Number(key.slice(key.lastIndexOf(" ") + 1)) - FIRST_NUMBER;
  return number < LOCAL_OFFSET ? number : number - LOCAL_OFFSET + mainCount;
}
