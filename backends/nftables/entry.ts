/**
 * What stands in the table for one front of a Service: an address and port, or a node port. Pure.
 *
 * @module
 */
import { type Cidr, hostCidr, prefixLengthOf } from "../../lib/net/cidr.ts";
import { CidrCover } from "../../lib/net/cidr_cover.ts";
import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { Verdict } from "../../lib/proxy/verdict.ts";
import { arrangeEndpoints } from "./arrangement.ts";
import {
  chainName,
  type ChainSpec,
  type Choice,
  DROP,
  FIRST_NUMBER,
  LOCAL_OFFSET,
  REJECT_CHAIN,
  type Treatment,
} from "./chain_spec.ts";
import { type Claim, type EntryId, keyOfEntry, type Role } from "./claims.ts";
import type { Element } from "./containers.ts";
import { SOURCE_RANGES_CHAIN } from "./base_chains.ts";
import { nameNumber, slotsOf, slotText } from "./slots.ts";

/** An entry as it is written. The same one always comes to the same elements. */
export interface Entry {
  readonly id: EntryId;
  readonly role: Role;
  readonly plan: ServicePlan;
  /** Endpoints in the order of their numbers. */
  readonly main: readonly Endpoint[];
  /** Those for clients from outside, where these have a list of their own. */
  readonly local: readonly Endpoint[];
}

/** The keys of endpoints in the order of their numbers. */
export interface EndpointOrder {
  readonly main: readonly Pick<Endpoint, "key">[];
  readonly local: readonly Pick<Endpoint, "key">[];
}

/** What elements depend on beside the entry. */
export interface EntryOptions {
  /** An address of this node: a source range that holds it admits the node by its own addresses. */
  readonly nodeIp?: IpAddress;
}

const NO_ENDPOINTS: readonly Endpoint[] = [];

/** The entry of a claim, with as many endpoints as can be where they were. */
export function arrangeEntry(
  { id, role }: Claim,
  plan: ServicePlan,
  previous: EndpointOrder | undefined,
): Entry {
  const { main, local } = verdictsOf(role, plan);
  return {
    id,
    role,
    plan,
    main: arrangeEndpoints(endpointsOf(main), previous?.main),
    local: arrangeEndpoints(endpointsOf(local), previous?.local),
  };
}

/** Every element of an entry. */
export function elementsOf(entry: Entry, options: EntryOptions): readonly Element[] {
  const { role } = entry;
  const key = keyOfEntry(entry.id);
  if (role === "allocated") return [{ container: "cluster-ips", key }];
  if (role === "hairpin") return [{ container: "hairpin", key }];
  const spec = chainOf(entry);
  const target = spec ? chainName(spec) : refusalOf(entry);
  const value = nameNumber(target);
  const { sourceRanges } = entry.plan;
  if (role === "nodePort") {
    return [{ container: "node-ports", key, value }, ...endpointElements(entry, "node-port-")];
  }
  const rest = endpointElements(entry, "");
  // A Service that refuses does so to everybody: there is nothing to protect.
  if (role !== "loadBalancer" || sourceRanges === undefined || target === REJECT_CHAIN) {
    return [{ container: "service-ips", key, value }, ...rest];
  }
  return [
    { container: "service-ips", key, value: nameNumber(SOURCE_RANGES_CHAIN) },
    { container: "admitted", key, value: target === DROP ? DROP : `goto ${target}` },
    ...admittedSources(entry.plan, options).map((source): Element => ({
      container: "source-ranges",
      key: `${key} . ${source}`,
    })),
    ...rest,
  ];
}

/** The chain that chooses an endpoint for an entry; `undefined` = there is nothing to choose. */
export function chainOf({ role, plan, main, local }: Entry): ChainSpec | undefined {
  if (role === "allocated" || role === "hairpin") return undefined;
  const treatment = treatmentOf(role, plan);
  const verdicts = verdictsOf(role, plan);
  const choices = {
    main: choiceOf(verdicts.main, main),
    ...(verdicts.local && { local: choiceOf(verdicts.local, local) }),
  };
  if (Object.values(choices).every((choice) => typeof choice === "string")) return undefined;
  return {
    front: role === "nodePort" ? "port" : "vip",
    treatment,
    ...choices,
    ...(plan.affinityTimeoutSeconds !== undefined && {
      affinitySeconds: plan.affinityTimeoutSeconds,
    }),
  };
}

/** The verdict for everybody; or for who is in the cluster, and for who is not. */
function verdictsOf(
  role: Role,
  { internal, external, externalFromCluster, masqueradeExternal }: ServicePlan,
): { readonly main: Verdict | undefined; readonly local?: Verdict } {
  if (role === "allocated" || role === "hairpin") return { main: undefined };
  if (role === "clusterIp") return { main: internal };
  if (masqueradeExternal === "all") return { main: external };
  return { main: externalFromCluster, local: external };
}

function treatmentOf(role: Role, plan: ServicePlan): Treatment {
  if (role !== "clusterIp") return plan.masqueradeExternal === "all" ? "masquerade" : "local";
  const { masqueradeInternal } = plan;
  if (masqueradeInternal === "off-cluster") return "off-cluster";
  return masqueradeInternal === "all" ? "masquerade" : "keep";
}

function endpointsOf(verdict: Verdict | undefined): readonly Endpoint[] {
  return verdict?.kind === "forward" ? verdict.endpoints : NO_ENDPOINTS;
}

function choiceOf(verdict: Verdict | undefined, endpoints: readonly Endpoint[]): Choice {
  if (verdict === undefined) return "reject";
  return verdict.kind === "forward" ? endpoints.length : verdict.kind;
}

/** Where nobody is served: in silence, if anybody is to be left without an answer. */
function refusalOf({ role, plan }: Entry): string {
  const { main, local = main } = verdictsOf(role, plan);
  return local?.kind === "drop" ? DROP : REJECT_CHAIN;
}

function endpointElements(entry: Entry, prefix: "" | "node-port-"): readonly Element[] {
  const { plan, main, local } = entry;
  const key = keyOfEntry(entry.id);
  const numbered = [
    ...main.map((endpoint, index) => ({ endpoint, number: FIRST_NUMBER + index })),
    ...local.map((endpoint, index) => ({ endpoint, number: FIRST_NUMBER + LOCAL_OFFSET + index })),
  ];
  if (plan.affinityTimeoutSeconds === undefined) {
    return numbered.map(({ endpoint, number }): Element => ({
      container: `${prefix}endpoints`,
      key: `${key} . ${slotText(number)}`,
      value: targetOf(endpoint),
    }));
  }
  const slots = slotsOf([...main, ...local]);
  const byKey = new Map([...main, ...local].map((endpoint) => [endpoint.key, endpoint]));
  return [
    ...numbered.map(({ endpoint, number }): Element => ({
      container: `${prefix}choices`,
      key: `${key} . ${slotText(number)}`,
      value: slots.get(endpoint.key)!,
    })),
    ...[...byKey.values()].map((endpoint): Element => ({
      container: `${prefix}endpoints`,
      key: `${key} . ${slots.get(endpoint.key)}`,
      value: targetOf(endpoint),
    })),
  ];
}

function targetOf({ address, port }: Endpoint): string {
  return `${address} . ${port}`;
}

const covers = new WeakMap<readonly Cidr[], CidrCover>();

/** The source ranges of a Service stay the same through all changes of its endpoints. */
function coverOf(ranges: readonly Cidr[]): CidrCover {
  const cover = covers.get(ranges) ?? new CidrCover(ranges);
  covers.set(ranges, cover);
  return cover;
}

/** The kernel refuses ranges that lie in others. */
function admittedSources(
  { sourceRanges = [], loadBalancerVips }: ServicePlan,
  { nodeIp }: EntryOptions,
): readonly string[] {
  const cover = coverOf(sourceRanges);
  const admitsNode = nodeIp !== undefined && cover.contains(nodeIp);
  // The node's own packets may have the address itself as source, where it is bound here.
  const more = admitsNode ? loadBalancerVips.filter((vip) => !cover.contains(vip)) : [];
  return [...cover.outermost, ...new Set(more.map(hostCidr))].map(rangeText);
}

/** A range as nft prints it: one of one address is that address. */
export function rangeText(range: Cidr): string {
  const bits = range.includes(":") ? 128 : 32;
  return prefixLengthOf(range) === bits ? range.slice(0, range.indexOf("/")) : range;
}
