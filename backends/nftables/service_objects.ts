/**
 * The objects of a ServicePort: the elements of its frontends, whose endpoints have numbers. Pure.
 *
 * @module
 */
import type { KernelObject, ObjectName } from "../../lib/engine/reconciler.ts";
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

/** A ServicePort with the numbers of its endpoints. It determines the objects completely. */
export interface NumberedService {
  readonly plan: ServicePlan;
  readonly order: EndpointOrder<Endpoint>;
  /** The slots of the endpoints, if the ServicePort has session affinity. */
  readonly slots?: Slots;
}

/** The endpoints of each verdict in the order of their numbers. */
export type EndpointOrder<Item = Pick<Endpoint, "key">> = Readonly<
  Record<"external" | "externalFromCluster" | "internal", readonly Item[]>
>;

const NO_ENDPOINTS: readonly Endpoint[] = [];
/** The placeholder for a number without an endpoint. */
const NO_ENDPOINT: Pick<Endpoint, "key"> = { key: "" as EndpointKey };

/** Numbers the endpoints of a ServicePort. They keep the numbers of a `previous` order if possible. */
export function numberEndpoints(
  plan: ServicePlan,
  previous: Partial<EndpointOrder> | undefined,
  slots: Slots | undefined,
): NumberedService {
  const { external, externalFromCluster, internal } = plan;
  return {
    plan,
    order: {
      external: arrangeEndpoints(endpointsOf(external), previous?.external),
      externalFromCluster: arrangeEndpoints(
        endpointsOf(externalFromCluster),
        previous?.externalFromCluster,
      ),
      internal: arrangeEndpoints(endpointsOf(internal), previous?.internal),
    },
    ...(slots && { slots }),
  };
}

/** The container and the key of a frontend. */
export function frontendName(
  { address, port }: Frontend,
  { protocol }: Pick<ServicePlan, "protocol">,
): ObjectName {
  const name = `${protocol.toLowerCase()} . ${port}`;
  return address === undefined
    ? { kind: "node-ports", name }
    : { kind: "service-ips", name: `${address} . ${name}` };
}

/** The lists of endpoints that a frontend has: of every client, or of those in the cluster and all others. */
function listsOf({ role, masquerade }: Frontend) {
  const hasTwo = masquerade === "from-node";
  const main = role === "ClusterIP" ? "internal" : hasTwo ? "externalFromCluster" : "external";
  return [
    { verdict: main, first: FIRST_NUMBER, listBit: 0 } as const,
    ...(hasTwo
      ? [{ verdict: "external", first: FIRST_NUMBER + LOCAL_OFFSET, listBit: LOCAL_BIT } as const]
      : []),
  ] as const;
}

/** The elements of a frontend, that of its address first. */
export function frontendElements(
  service: NumberedService,
  frontend: Frontend,
): readonly KernelObject[] {
  const front = frontendName(frontend, service.plan);
  const spec = chainOf(service, frontend);
  // Without any client, a drop if some client must not get an answer.
  const refusal = frontend.verdict.external.kind === "drop" ? DROP : REJECT_CHAIN;
  const target = spec ? chainName(spec) : refusal;
  const text = nameNumber(target);
  const rest = endpointElements(service, frontend);
  if (frontend.admitted === undefined) return [{ ...front, text }, ...rest];
  return [
    { ...front, text: nameNumber(SOURCE_RANGES_CHAIN) },
    ...sourceTexts(frontend.admitted).map((source) => ({
      kind: "source-ranges",
      name: `${front.name} . ${source}`,
      text: "",
    })),
    { kind: "admitted", name: front.name, text: target === DROP ? DROP : `goto ${target}` },
    ...rest,
  ];
}

/** The elements of a ServicePort that others may have too: of its cluster IP, and of its own senders. */
export function addressElements(plan: ServicePlan): readonly KernelObject[] {
  const senders = new Set(hairpinEndpoints(plan).map(({ address }) => address));
  return [
    { kind: "cluster-ips", name: plan.clusterIp, text: "", isShared: true },
    ...[...senders].map((address): KernelObject => ({
      kind: "hairpin",
      name: `${address} . ${address}`,
      text: "",
      isShared: true,
    })),
  ];
}

/** Returns the chain that chooses an endpoint for a frontend; `undefined` = it needs none. */
export function chainOf(
  { plan, order }: NumberedService,
  frontend: Frontend,
): ChainSpec | undefined {
  const [main, local] = listsOf(frontend).map(({ verdict }): Choice =>
    plan[verdict].kind === "forward" ? order[verdict].length : plan[verdict].kind
  );
  if (main === undefined || (typeof main === "string" && typeof local !== "number")) return;
  return {
    front: frontend.address === undefined ? "port" : "vip",
    treatment: TREATMENTS[frontend.masquerade],
    main,
    ...(local !== undefined && { local }),
    ...(plan.affinityTimeoutSeconds !== undefined && {
      affinitySeconds: plan.affinityTimeoutSeconds,
    }),
  };
}

const TREATMENTS: Readonly<Record<Frontend["masquerade"], Treatment>> = {
  all: "masquerade",
  "from-node": "local",
  none: "to",
  "off-cluster": "off-cluster",
};

function endpointsOf(verdict: Verdict): readonly Endpoint[] {
  return verdict.kind === "forward" ? verdict.endpoints : NO_ENDPOINTS;
}

function endpointElements(
  { plan, order, slots }: NumberedService,
  frontend: Frontend,
): readonly KernelObject[] {
  const { name, prefix } = placeOf(frontend, plan);
  const elements: KernelObject[] = [];
  const add = (container: "choices" | "endpoints", number: number, text: string) => {
    elements.push({ kind: prefix + container, name: `${name} . ${slotText(number)}`, text });
  };
  for (const { verdict, first, listBit } of listsOf(frontend)) {
    order[verdict].forEach((endpoint, index) => {
      if (slots === undefined) return add("endpoints", first + index, targetOf(endpoint));
      const slot = slotOf(slots, endpoint);
      add("choices", first + index, slotText(slot));
      add("endpoints", slot + listBit, targetOf(endpoint));
    });
  }
  return elements;
}

/** The key of a frontend, and how the names of the maps of its endpoints begin. */
function placeOf(frontend: Frontend, plan: ServicePlan) {
  const { name } = frontendName(frontend, plan);
  return { name, prefix: frontend.address === undefined ? "node-port-" : "" };
}

/** Reads the order of a ServicePort's endpoints from an existing table. `slots`: if it has affinity. */
export function foundOrder(
  plan: ServicePlan,
  slots: Slots | undefined,
  found: TableElements,
): Partial<EndpointOrder> {
  const order: Partial<Record<keyof EndpointOrder, EndpointOrder["internal"]>> = {};
  for (const frontend of frontendsOf(plan)) {
    const { name, prefix } = placeOf(frontend, plan);
    const values = found.get(`${prefix}${slots ? "choices" : "endpoints"}`);
    for (const { verdict, first } of listsOf(frontend)) {
      const endpoints = endpointsOf(plan[verdict]);
      const valueAt = (index: number) => values?.get(`${name} . ${slotText(first + index)}`);
      if (endpoints.length < 2 || order[verdict] || valueAt(0) === undefined) continue;
      const byValue = new Map<string | undefined, Endpoint>(
        endpoints.map((each) => [slots ? slotText(slotOf(slots, each)) : targetOf(each), each]),
      );
      order[verdict] = endpoints.map((_, index) => byValue.get(valueAt(index)) ?? NO_ENDPOINT);
    }
  }
  return order;
}

/** Reads the slots of a ServicePort's endpoints from an existing table. */
export function foundSlots(plan: ServicePlan, found: TableElements): Slots {
  const slots = new Map<EndpointKey, number>();
  for (const frontend of frontendsOf(plan)) {
    const { name, prefix } = placeOf(frontend, plan);
    const choices = found.get(`${prefix}choices`);
    const endpoints = found.get(`${prefix}endpoints`);
    for (const { verdict, first, listBit } of listsOf(frontend)) {
      const keys = new Map(endpointsOf(plan[verdict]).map((each) => [targetOf(each), each.key]));
      for (let number = first;; number++) {
        const slot = choices?.get(`${name} . ${slotText(number)}`);
        if (slot === undefined) break;
        const target = endpoints?.get(`${name} . ${slotText(Number(slot) + listBit)}`);
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
