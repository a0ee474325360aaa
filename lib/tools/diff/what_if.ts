/**
 * What other objects would change on a node: Services, connections between pods, addresses and routes; as a
 * report and as JSON. The machine is not asked.
 *
 * @module
 */
import { type KindSpec, type KubeObject, objectKey } from "../../api/kind.ts";
import {
  CLUSTER_NETWORK_POLICY,
  type ClusterNetworkPolicy,
} from "../../api/kinds/cluster_network_policy.ts";
import { ENDPOINT_SLICE } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../../api/kinds/endpoints.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { NETWORK_POLICY, type NetworkPolicy } from "../../api/kinds/network_policy.ts";
import { NODE } from "../../api/kinds/node.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTING_OBJECT_KINDS } from "../../api/kinds/routing_objects.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { SERVICE_CIDR } from "../../api/kinds/service_cidr.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { Informer } from "../../kube/informer.ts";
import {
  type InformerSet,
  type ListOptions,
  WITHOUT_DEFINITIONS,
} from "../../kube/informer_set.ts";
import { AGED, ObjectAges } from "../../kube/manifests/manifest_store.ts";
import type { ObjectFinding } from "../../kube/manifests/manifest_problem.ts";
import { countText, groupedText } from "../../log/count_text.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import { TimeSlice } from "../../os/time_slice.ts";
import { portsText } from "../../policy/allowed_ports.ts";
import {
  type ChangedEnd,
  comparePolicies,
  type ConnectionChange,
  type PolicyComparison,
} from "../../policy/compare_policies.ts";
import { policyNames } from "../../policy/judge_connection.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import {
  comparePlannedRouting,
  type PlannedRoutingChange,
} from "../../routing/compare_planned_routing.ts";
import { describePlan } from "../changes/describe_plan.ts";
import { readObjectsOnce } from "../offline/plan_node.ts";
import {
  type PlannedNode,
  type PlanNodeDependencies,
  planObjects,
  planRouting,
  policyStateOf,
  type RoutedObjects,
} from "../offline/planned_node.ts";
import type { Report, Row } from "../report.ts";
import { servicePortTitle } from "./difference_report.ts";
import type { ChosenKeys } from "./node_difference.ts";

interface FamilyWhatIf {
  readonly family: IpFamily;
  readonly changes: readonly {
    readonly key: ServicePortKey;
    readonly kind: "added" | "changed" | "removed";
    /** The differences, e.g. `2 -> 3 endpoints`. */
    readonly details: readonly string[];
  }[];
  /** Changes that concern all Services, in words. */
  readonly shared: readonly string[];
}

/** The changes of a node. */
export interface WhatIf {
  readonly before: PlannedNode;
  readonly after: PlannedNode;
  readonly families: readonly FamilyWhatIf[];
  /** The changes by IP family. Empty if no policies exist before and after. */
  readonly policies: readonly PolicyComparison[];
  /** The changes of addresses and routes. Absent if routing is disabled. */
  readonly routing?: readonly PlannedRoutingChange[];
  /** What is wrong with the new objects. */
  readonly problems: readonly ObjectFinding[];
}

/**
 * Plans the new objects for the same node, mode, settings and machine. Keeps the Nodes and ServiceCIDRs if the
 * new objects have none, and the Services if they only have policies, pools or peers. New ones of these, pods
 * and namespaces come on top of the known ones. `keys` chooses the compared ServicePorts.
 */
export async function planWhatIf(
  dependencies: PlanNodeDependencies,
  before: PlannedNode,
  configuration: LoadedConfiguration,
  keys: ChosenKeys,
): Promise<WhatIf> {
  const { mode, nodeName, machine } = before;
  const read = await readObjectsOnce(dependencies, { configuration, nodeName });
  const { informers } = read;
  keepMissing(before.informers, informers);
  await setAges(dependencies, before.informers, informers);
  const routed = await readNewRouted(dependencies, before, configuration, informers);
  const planned = await planObjects(dependencies, {
    ...{ informers, mode, nodeName, machine, configuration: before.configuration },
    families: [...before.plans.keys()],
  });
  const families: FamilyWhatIf[] = [];
  const slice = new TimeSlice(dependencies.clock);
  for (const [family, plan] of before.plans) {
    const next = planned.plans.get(family);
    if (next) families.push(await comparePlans(plan, next, keys, slice));
  }
  const problems = [...read.problems, ...planned.problems.map(read.placed)];
  const after = { ...planned, placed: read.placed, problems };
  const policies = comparePolicyObjects(before, informers);
  const whatIf = { before, after, families, policies, problems };
  if (!routed || keys) return whatIf;
  const was = await planRouting(before);
  const is = await planRouting({ ...after, readRouted: () => Promise.resolve(routed) });
  return { ...whatIf, routing: was && is ? comparePlannedRouting(was, is) : [] };
}

/**
 * A folder of Services often has no nodes, and one of policies, pools or peers no Services: the current
 * ones stay then.
 */
function keepMissing(before: InformerSet, after: InformerSet): void {
  const ofServices = [SERVICE, ENDPOINT_SLICE, ENDPOINTS] as readonly KindSpec[];
  const hasOthers = [...POLICIES, ...ROUTING_OBJECT_KINDS].some((spec) =>
    after.kinds.has(spec.kind) && after.of(spec).size > 0
  );
  const isOnlyOthers = hasOthers && ofServices.every((spec) => after.of(spec).size === 0);
  const kept = [NODE, SERVICE_CIDR, ...isOnlyOthers ? ofServices : []] as readonly KindSpec[];
  for (const spec of kept) if (after.of(spec).size === 0) addMissing(before, after, spec);
}

/** Adds the objects that are missing. */
function addMissing(from: InformerSet, to: InformerSet, spec: KindSpec): void {
  if (!from.kinds.has(spec.kind)) return;
  const informer = to.of(spec);
  for (const object of from.of(spec).values()) {
    if (informer.get(objectKey(object)) === undefined) informer.upsert(object);
  }
}

/** Gives the new objects the creation times that they would have in use: the older one precedes. */
async function setAges(
  { clock }: PlanNodeDependencies,
  before: InformerSet,
  after: InformerSet,
): Promise<void> {
  const slice = new TimeSlice(clock);
  const ages = new ObjectAges(before);
  await ages.later(after.of(SERVICE).values(), slice);
  for (const spec of AGED.filter(({ kind }) => after.kinds.has(kind))) {
    const known = before.kinds.has(spec.kind) ? before.of(spec) : undefined;
    for (const object of [...after.of(spec).values()]) {
      after.of(spec).upsert(ages.aged({ spec, object }, known?.get(objectKey(object)), 0));
      await slice.pause();
    }
  }
}

/**
 * Reads the new objects of routing, and writes the addresses that Services would get into their status,
 * also of `services`, so that they are planned with them. Returns `undefined` if routing is disabled.
 */
async function readNewRouted(
  dependencies: PlanNodeDependencies,
  before: PlannedNode,
  configuration: LoadedConfiguration,
  services: InformerSet,
): Promise<RoutedObjects | undefined> {
  if (!before.configuration.proxy.routing.enabled) return undefined;
  const known = await before.readRouted?.();
  if (!known) return undefined;
  const kinds: readonly KindSpec[] = [
    ...[ROUTED_SERVICE, ROUTED_NODE, NAMESPACE],
    ...ROUTING_OBJECT_KINDS,
  ];
  const { informers } = await readObjectsOnce(dependencies, {
    ...{ configuration, nodeName: before.nodeName },
    subscriptions: new Map<KindSpec, ListOptions>(kinds.map((spec) => [spec, WITHOUT_DEFINITIONS])),
  });
  if (informers.of(ROUTED_SERVICE).size === 0 && services.of(SERVICE).size > 0) {
    addMissing(known.informers, informers, ROUTED_SERVICE);
  }
  if (informers.of(ROUTED_NODE).size === 0) addMissing(known.informers, informers, ROUTED_NODE);
  for (const set of [before.informers, known.informers]) addMissing(set, informers, NAMESPACE);
  // Whoever applies manifests leaves the status as it is, and other pools and peers.
  if (configuration.relay.manifests.length > 0) {
    for (const spec of ROUTING_OBJECT_KINDS) addMissing(known.informers, informers, spec);
    keepStatus(known.informers.of(ROUTED_SERVICE), informers.of(ROUTED_SERVICE));
    keepStatus(before.informers.of(SERVICE), services.of(SERVICE));
  }
  const routed = { ...known, informers };
  const planned = await planRouting({
    ...{ ...before, plans: new Map() },
    readRouted: () => Promise.resolve(routed),
  });
  for (const key of planned!.statuses.keys()) {
    const addresses = planned!.assignedTo(key);
    if (!addresses) continue;
    setStatus(informers.of(ROUTED_SERVICE), key, addresses);
    setStatus(services.of(SERVICE), key, addresses);
  }
  return routed;
}

/** A Service of any of the kinds that are read. */
type ServiceWithStatus = KubeObject & {
  readonly status?:
    | {
      readonly loadBalancer?:
        | { readonly ingress?: readonly object[] | undefined }
        | null
        | undefined;
    }
    | null
    | undefined;
};

function keepStatus<T extends ServiceWithStatus>(
  known: Pick<Informer<T>, "get">,
  informer: Pick<Informer<T>, "upsert" | "values">,
): void {
  for (const service of [...informer.values()]) {
    if (service.status?.loadBalancer?.ingress?.length) continue;
    const { status } = known.get(objectKey(service)) ?? {};
    if (status) informer.upsert({ ...service, status });
  }
}

function setStatus<T extends ServiceWithStatus>(
  informer: Pick<Informer<T>, "get" | "upsert">,
  key: string,
  addresses: readonly IpAddress[],
): void {
  const service = informer.get(key);
  if (!service) return;
  const known = service.status?.loadBalancer?.ingress ?? [];
  const ingress = addresses.map((ip) =>
    known.find((each) => "ip" in each && each.ip === ip) ?? { ip }
  );
  // The same version would be no news.
  const { resourceVersion: _, ...metadata } = service.metadata;
  informer.upsert({ ...service, metadata, status: { loadBalancer: { ingress } } });
}

async function comparePlans(
  before: ProxyPlan,
  after: ProxyPlan,
  keys: ChosenKeys,
  slice: TimeSlice,
): Promise<FamilyWhatIf> {
  const chosen = keys && new Set([...keys(before), ...keys(after)]);
  const changed: ServicePortKey[] = [];
  for (const key of new Set([...before.services.keys(), ...after.services.keys()])) {
    await slice.pause();
    if (chosen && !chosen.has(key)) continue;
    if (!isSame(before.services.get(key), after.services.get(key))) changed.push(key);
  }
  const changes = changed.sort().map((key) => {
    const [was, is] = [before.services.get(key), after.services.get(key)];
    return {
      key,
      kind: was === undefined ? "added" : is === undefined ? "removed" : "changed",
      details: is
        ? describePlan(was, is)
        : describePlan(undefined, was).map((word) => `had ${word}`),
    } as const;
  });
  const [{ shared: was }, { shared: is }] = [before, after];
  const list = (items: readonly string[]) => items.join(", ") || "none";
  const shared: string[] = [];
  if (!deepEqual(was.serviceCidrs, is.serviceCidrs)) {
    shared.push(`service ranges: ${list(was.serviceCidrs)} -> ${list(is.serviceCidrs)}`);
  }
  if (!deepEqual(was.nodePortAddresses, is.nodePortAddresses)) {
    const [old, now] = [list(was.nodePortAddresses), list(is.nodePortAddresses)];
    shared.push(`addresses of node ports: ${old} -> ${now}`);
  }
  if (!deepEqual(was.localTraffic, is.localTraffic)) shared.push("how local traffic is recognized");
  return { family: before.family, changes, shared };
}

/** Ignores the creation time: it only decides which Service is older. */
function isSame(was: ServicePlan | undefined, is: ServicePlan | undefined): boolean {
  if (was === undefined || is === undefined) return was === is;
  if (was.createdAt === is.createdAt) return deepEqual(was, is);
  const { createdAt: _, ...before } = was;
  const { createdAt: __, ...after } = is;
  return deepEqual(before, after);
}

const POLICIES: readonly KindSpec[] = [NETWORK_POLICY, CLUSTER_NETWORK_POLICY];

/** Compares policies for the pods and namespaces that there will be. */
function comparePolicyObjects(
  { informers, plans }: PlannedNode,
  added: InformerSet,
): readonly PolicyComparison[] {
  const after = policyStateOf(informers, added);
  const before = policyStateOf(informers, added);
  if (before === undefined || after === undefined) return [];
  const [known, ofCluster] = [NETWORK_POLICY, CLUSTER_NETWORK_POLICY].map((spec) =>
    informers.kinds.has(spec.kind) ? informers.of(spec as KindSpec) : undefined
  );
  for (const { key, tier } of [...before.policies.values()]) {
    if (tier === "NetworkPolicy") before.setPolicy(key, known?.get(key) as NetworkPolicy);
    else before.setClusterPolicy(key, ofCluster?.get(key) as ClusterNetworkPolicy);
  }
  return [...plans.keys()].map((family) => comparePolicies([before, after], family));
}

/** The number of changed ServicePorts, shared values, kinds of connections, addresses and routes. */
export function countChanges({ families, policies, routing = [] }: WhatIf): number {
  return routing.length +
    families.reduce((sum, { changes, shared }) => sum + changes.length + shared.length, 0) +
    policies.reduce((sum, { changes }) => sum + changes.length, 0);
}

/** The data of `--json`; docs/diff.md describes its fields. */
export function whatIfJson(whatIf: WhatIf): object {
  const { before: { mode, nodeName }, families, policies, routing } = whatIf;
  return {
    node: nodeName,
    mode,
    changes: countChanges(whatIf),
    ...(policies.length > 0 && { policies }),
    ...(routing && { routing }),
    families: families.map(({ family, changes, shared }) => ({
      family,
      shared,
      changes: changes.map(({ key, ...rest }) => ({ servicePort: key, ...rest })),
    })),
  };
}

/** Each Service, connection, address and route that would change. */
export function whatIfReport(whatIf: WhatIf): Report {
  const { before: { mode, nodeName }, families, policies, routing } = whatIf;
  const count = countChanges(whatIf);
  const last: Row = count === 0
    ? { cells: ["Nothing would change"], tone: "good" }
    : { cells: [`${countText(count, "thing")} would change`], tone: "warning" };
  return {
    title: "",
    rows: [{ cells: ["Node", `${nodeName}, mode ${mode}`] }],
    parts: [
      ...families.map(({ family, changes, shared }) =>
        part(family, [
          ...shared.map((text) => ({ cells: ["all Services", text] })),
          ...changes.map(({ key, kind, details }): Row => ({
            cells: [kind, servicePortTitle(key)],
            tone: kind === "added" ? "good" : kind === "removed" ? "bad" : "warning",
            detail: details,
          })),
        ], Infinity)
      ),
      ...policies.map(policyPart),
      ...(routing ? [part("Routing", routing.map(routingRow), MOST_ROUTING)] : []),
      { title: "", rows: [last], parts: [] },
    ],
  };
}

/** Most changes of connections between pods. */
const MOST_CONNECTIONS = 20;
/** Most changes of addresses and routes. */
const MOST_ROUTING = 40;
/** Most pods of an end that are named. */
const MOST_PODS = 3;

function part(title: string, rows: readonly Row[], most: number): Report {
  const more = rows.length - most;
  if (rows.length === 0) return { title, rows: [{ cells: ["nothing would change"] }], parts: [] };
  const rest = more > 0
    ? [{ cells: [`and ${countText(more, "more change")}; --json has all`] }]
    : [];
  return { title, rows: [...rows.slice(0, most), ...rest], parts: [] };
}

const OBJECTS: Readonly<Record<PlannedRoutingChange["object"], string>> = {
  address: "addresses of",
  owner: "node that answers for",
  peer: "session with",
  announcement: "announcement of",
};

function routingRow({ object, name, before, after, reason }: PlannedRoutingChange): Row {
  const words = `${OBJECTS[object]} ${name}: ${before ?? "none"} -> ${after ?? "none"}`;
  return { cells: [reason === undefined ? words : `${words} (${reason})`] };
}

/** The pods that policies would cut off from each other come before those that they would connect. */
function policyPart(
  { family, changes, cutPairs, openedPairs, groupPairsLeftOut }: PolicyComparison,
): Report {
  const pairs = (count: number) =>
    `${groupedText(count)} ${count === 1 ? "pair" : "pairs"} of pods`;
  const sorted = changes.toSorted((left, right) => Number(isCut(right)) - Number(isCut(left)));
  const listed = part(`NetworkPolicies, ${family}`, sorted.map(changeRow), MOST_CONNECTIONS);
  if (changes.length + groupPairsLeftOut === 0) return listed;
  const leftOut = `${groupedText(groupPairsLeftOut)} pairs of groups of pods were not compared: ` +
    "there are too many; apply the policies in parts";
  return {
    ...listed,
    rows: [
      { cells: [`cut: ${pairs(cutPairs)}; opened: ${pairs(openedPairs)}`] },
      ...(changes.length > 0 ? listed.rows : []),
      ...(groupPairsLeftOut > 0 ? [{ cells: [leftOut] }] : []),
    ],
  };
}

function isCut({ after }: ConnectionChange): boolean {
  return after !== "all" && after.length === 0;
}

function changeRow(change: ConnectionChange): Row {
  const { from, to, before, after, decidedBy, policies } = change;
  const end = decidedBy === "egress" ? "sender" : "receiver";
  const reason = policies.length === 0
    ? `no NetworkPolicy isolates the ${end} any more`
    : `by ${policyNames(policies)}, ${decidedBy} of the ${end}`;
  return {
    cells: [`${endText(from)} -> ${endText(to)}`],
    tone: isCut(change) ? "bad" : "warning",
    detail: [`ports ${portsText(before)} -> ${portsText(after)}`, reason],
  };
}

function endText({ isOutside, pods, count }: ChangedEnd): string {
  if (isOutside) return "any address that is no pod's";
  const named = pods.slice(0, MOST_PODS).join(", ");
  const more = count - Math.min(pods.length, MOST_PODS);
  return more > 0 ? `${named} and ${groupedText(more)} more` : named;
}
