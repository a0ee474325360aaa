import type { KernelObject } from "../../lib/engine/reconciler.ts";
import { type Cidr, hostCidr, networkOf, prefixLengthOf } from "../../lib/net/cidr.ts";
import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";
import { type Frontend, frontendsOf, hairpinEndpoints } from "../../lib/proxy/frontend.ts";
import type { AdmittedSources, ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { Verdict } from "../../lib/proxy/verdict.ts";
import type { TableElements } from "../netfilter/nft/table_listing.ts";
import {
  chainName,
  type ChainSpec,
  type Choice,
  DROP,
  FIRST_NUMBER,
  LOCAL_OFFSET,
  REJECT_CHAIN,
  SOURCE_RANGES_CHAIN,
  type Treatment,
} from "./chain_spec.ts";
import { LOCAL_BIT, nameNumber, type Slots, slotText } from "./slots.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Port } from "../../lib/net/port.ts";

/** Containers whose elements belong to one or several ServicePorts. */
type EntryContainer = "cluster-ips" | "hairpin" | "node-ports" | "service-ips";

/** A container and key, e.g. `service-ips 10.96.0.1 . tcp . 80`. */
export type EntryId = string & { readonly __brand: "EntryId" };

/** Returns every entry that a ServicePort needs, each once. Only frontends have an owner. */
export function claimsOf(plan: ServicePlan): readonly EntryId[] {
  const ids = frontendsOf(plan).map((frontend) => frontendId(frontend, plan));
  ids.push(allocatedId(plan.clusterIp));
  const senders = hairpinEndpoints(plan);
  if (senders.length === 0) return ids;
  for (const address of new Set(senders.map(({ address }) => address))) {
    ids.push(hairpinId(address));
  }
  return ids;
}

/** Plans with more frontends get an index. */
const FEW_FRONTENDS = 8;
const indexes = new WeakMap<ServicePlan, ReadonlyMap<EntryId, Frontend>>();

/** The frontend of a ServicePort that an entry is for; `undefined` = the entry is for none. */
export function frontendAt(id: EntryId, plan: ServicePlan): Frontend | undefined {
  // Half of the entries are for none, and a first load asks several times for each.
  if (!id.startsWith("service-ips ") && !isNodePort(id)) return undefined;
  if (plan.externalIps.length + plan.loadBalancerVips.length <= FEW_FRONTENDS) {
    return frontendsOf(plan).find((frontend) => frontendId(frontend, plan) === id);
  }
  const known = indexes.get(plan);
  const index = known ??
    new Map(frontendsOf(plan).map((frontend) => [frontendId(frontend, plan), frontend]));
  if (known === undefined) indexes.set(plan, index);
  return index.get(id);
}

/** Whether an entry is for a node port. */
export function isNodePort(id: EntryId): boolean {
  return id.startsWith("node-ports ");
}

/** The entry of an endpoint that is sent its own packets. */
export function hairpinId(address: IpAddress): EntryId {
  return entryId("hairpin", `${address} . ${address}`);
}

/** The entry of a cluster IP for all ports. */
function allocatedId(address: IpAddress): EntryId {
  return entryId("cluster-ips", address);
}

function vipKey(
  address: IpAddress,
  { port, protocol }: Pick<ServicePlan, "port" | "protocol">,
): string {
  return `${address} . ${protocol.toLowerCase()} . ${port}`;
}

/** The container that an entry is in. */
export function containerOf(id: EntryId): EntryContainer {
  return id.slice(0, id.indexOf(" ")) as EntryContainer;
}

/** The key that an entry is for. */
export function keyOfEntry(id: EntryId): string {
  return id.slice(id.indexOf(" ") + 1);
}

/** The entry of a frontend. */
export function frontendId({ address, port }: Frontend, { protocol }: ServicePlan): EntryId {
  return address === undefined
    ? entryId("node-ports", portKey({ protocol }, port))
    : entryId("service-ips", vipKey(address, { port, protocol }));
}

function portKey({ protocol }: Pick<ServicePlan, "protocol">, port: Port): string {
  return `${protocol.toLowerCase()} . ${port}`;
}

function entryId(container: EntryContainer, key: string): EntryId {
  return `${container} ${key}` as EntryId;
}

/** An entry in its written form. It determines the elements completely. */
export interface Entry {
  readonly id: EntryId;
  readonly plan: ServicePlan;
  /** Endpoints in the order of their numbers. */
  readonly main: readonly Endpoint[];
  /** Endpoints for clients from outside, if these have a separate list. */
  readonly local: readonly Endpoint[];
  /** The slots of the endpoints, if the ServicePort has session affinity. */
  readonly slots?: Slots;
}

/** The inputs for the numbers of endpoints. */
interface EntryNumbers {
  /** The order that they had. @default {none} */
  readonly previous?: EndpointOrder | undefined;
  /** Needed for a ServicePort with session affinity. */
  readonly slots?: Slots | undefined;
}

/** The keys of endpoints in the order of their numbers. */
export interface EndpointOrder {
  readonly main: readonly Pick<Endpoint, "key">[];
  readonly local: readonly Pick<Endpoint, "key">[];
}

const NO_ENDPOINTS: readonly Endpoint[] = [];

/** The difference between the keys of the two lists of an entry. */
const LISTS = [
  { list: "main", first: FIRST_NUMBER, listBit: 0 },
  { list: "local", first: FIRST_NUMBER + LOCAL_OFFSET, listBit: LOCAL_BIT },
] as const;

/** The entry of a ServicePort. Endpoints keep their numbers if possible. */
export function arrangeEntry(
  id: EntryId,
  plan: ServicePlan,
  { previous, slots }: EntryNumbers = {},
): Entry {
  const { main, local } = verdictsOf(frontendAt(id, plan));
  return {
    id,
    plan,
    main: arrangeEndpoints(endpointsOf(main), previous?.main),
    local: arrangeEndpoints(endpointsOf(local), previous?.local),
    ...(slots && { slots }),
  };
}

/** Every element of an entry: an object whose kind is its set or map. */
export function elementsOf(entry: Entry): readonly KernelObject[] {
  const { id, plan } = entry;
  const name = keyOfEntry(id);
  const frontend = frontendAt(id, plan);
  if (frontend === undefined) return [{ kind: containerOf(id), name, text: "" }];
  const spec = chainOf(entry, frontend);
  const target = spec ? chainName(spec) : refusalOf(frontend);
  const text = nameNumber(target);
  if (frontend.address === undefined) {
    return [{ kind: "node-ports", name, text }, ...endpointElements(entry, "node-port-")];
  }
  const rest = endpointElements(entry, "");
  if (frontend.admitted === undefined) return [{ kind: "service-ips", name, text }, ...rest];
  return [
    { kind: "service-ips", name, text: nameNumber(SOURCE_RANGES_CHAIN) },
    ...sourceTexts(frontend.admitted).map((source) => ({
      kind: "source-ranges",
      name: `${name} . ${source}`,
      text: "",
    })),
    { kind: "admitted", name, text: target === DROP ? DROP : `goto ${target}` },
    ...rest,
  ];
}

/** Returns the chain that chooses an endpoint for an entry; `undefined` = it needs none. */
export function chainOf(
  { id, plan, main, local }: Entry,
  frontend = frontendAt(id, plan),
): ChainSpec | undefined {
  if (frontend === undefined) return undefined;
  const verdicts = verdictsOf(frontend);
  const choice = choiceOf(verdicts.main, main);
  const localChoice = verdicts.local && choiceOf(verdicts.local, local);
  if (typeof choice === "string" && typeof localChoice !== "number") return undefined;
  return {
    front: frontend.address === undefined ? "port" : "vip",
    treatment: TREATMENTS[frontend.masquerade],
    main: choice,
    ...(localChoice !== undefined && { local: localChoice }),
    ...(plan.affinityTimeoutSeconds !== undefined && {
      affinitySeconds: plan.affinityTimeoutSeconds,
    }),
  };
}

const TREATMENTS: Readonly<Record<Frontend["masquerade"], Treatment>> = {
  all: "masquerade",
  "from-node": "local",
  none: "keep",
  "off-cluster": "off-cluster",
};

/** The verdict for every client; or for clients in the cluster, and for all others. */
function verdictsOf(
  frontend: Frontend | undefined,
): { readonly main: Verdict | undefined; readonly local?: Verdict } {
  if (frontend === undefined) return { main: undefined };
  const { masquerade, verdict: { internal, external } } = frontend;
  return masquerade === "from-node" ? { main: internal, local: external } : { main: external };
}

function endpointsOf(verdict: Verdict | undefined): readonly Endpoint[] {
  return verdict?.kind === "forward" ? verdict.endpoints : NO_ENDPOINTS;
}

function choiceOf(verdict: Verdict | undefined, endpoints: readonly Endpoint[]): Choice {
  if (verdict === undefined) return "reject";
  return verdict.kind === "forward" ? endpoints.length : verdict.kind;
}

/** The refusal if no client is served: a drop if some client must not get an answer. */
function refusalOf({ verdict: { external } }: Frontend): string {
  return external.kind === "drop" ? DROP : REJECT_CHAIN;
}

function endpointElements(entry: Entry, prefix: "" | "node-port-"): readonly KernelObject[] {
  const { slots } = entry;
  const key = keyOfEntry(entry.id);
  const elements: KernelObject[] = [];
  const add = (container: "choices" | "endpoints", number: number, text: string) => {
    elements.push({
      kind: `${prefix}${container}`,
      name: `${key} . ${slotText(number)}`,
      text,
    });
  };
  for (const { list, first, listBit } of LISTS) {
    entry[list].forEach((endpoint, index) => {
      if (slots === undefined) return add("endpoints", first + index, targetOf(endpoint));
      const slot = slotOf(slots, endpoint);
      add("choices", first + index, slotText(slot));
      add("endpoints", slot + listBit, targetOf(endpoint));
    });
  }
  return elements;
}

/** Reads the slots of a ServicePort's endpoints, at its frontends, from an existing table. */
export function foundSlots(
  frontends: readonly EntryId[],
  { internal, external, externalFromCluster }: ServicePlan,
  found: TableElements,
): Slots {
  const keys = new Map(
    [internal, external, externalFromCluster].flatMap(endpointsOf)
      .map((endpoint) => [targetOf(endpoint), endpoint.key]),
  );
  const slots = new Map<EndpointKey, number>();
  for (const id of frontends) {
    const prefix = isNodePort(id) ? "node-port-" : "";
    const choices = found.get(`${prefix}choices`);
    const endpoints = found.get(`${prefix}endpoints`);
    for (const { first, listBit } of LISTS) {
      for (let number = first;; number++) {
        const slot = choices?.get(`${keyOfEntry(id)} . ${slotText(number)}`);
        if (slot === undefined) break;
        const target = endpoints?.get(`${keyOfEntry(id)} . ${slotText(Number(slot) + listBit)}`);
        const key = keys.get(target ?? "");
        if (key !== undefined) slots.set(key, Number(slot));
      }
    }
  }
  return slots;
}

function slotOf(slots: Slots, { key }: Endpoint): number {
  const slot = slots.get(key);
  if (slot === undefined) throw new Error(`Cannot number endpoint '${key}': it has no slot`);
  return slot;
}

function targetOf({ address, port }: Endpoint): string {
  return `${address} . ${port}`;
}

/** The kernel refuses overlapping ranges. */
function sourceTexts({ cover, own }: AdmittedSources): readonly string[] {
  const more = own.filter((address) => !cover.contains(address));
  return [...cover.outermost, ...new Set(more.map(hostCidr))].map(rangeText);
}

/** Formats a range as nft does: a range of one address is printed as the address. */
export function rangeText(range: Cidr): string {
  const bits = range.includes(":") ? 128 : 32;
  return prefixLengthOf(range) === bits ? networkOf(range) : range;
}

/**
 * Orders the endpoints so that few change their number: a remaining endpoint keeps it, a new one
 * takes the number of a removed one, and gaps are filled from the end. In sorted order, one new
 * endpoint of fifty would move half of the others.
 */
function arrangeEndpoints(
  wanted: readonly Endpoint[],
  previous: readonly Pick<Endpoint, "key">[] | undefined,
): readonly Endpoint[] {
  if (previous === undefined || isSame(wanted, previous)) return wanted;
  const left = new Map<EndpointKey, Endpoint>(wanted.map((endpoint) => [endpoint.key, endpoint]));
  const places: (Endpoint | undefined)[] = previous.map(({ key }) => {
    const endpoint = left.get(key);
    left.delete(key);
    return endpoint;
  });
  const arrivals = left.values();
  const filled = [...places.map((place) => place ?? arrivals.next().value), ...arrivals];
  for (let index = 0; index < filled.length; index++) {
    while (filled.length > 0 && filled.at(-1) === undefined) filled.pop();
    if (index < filled.length && filled[index] === undefined) filled[index] = filled.pop();
  }
  const arranged = filled.filter((endpoint) => endpoint !== undefined);
  // The list is part of the plan, and takes no extra memory.
  return isSame(wanted, arranged) ? wanted : arranged;
}

function isSame(
  left: readonly Pick<Endpoint, "key">[],
  right: readonly Pick<Endpoint, "key">[],
): boolean {
  return left.length === right.length && left.every(({ key }, index) => key === right[index]?.key);
}
