import type { LoadedConfiguration } from "../../config/load.ts";
import { type KindSpec, objectKey } from "../../api/kind.ts";
import { ENDPOINT_SLICE } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../../api/kinds/endpoints.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { NODE } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { SERVICE_CIDR } from "../../api/kinds/service_cidr.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import { AGED, ObjectAges } from "../../kube/manifests/manifest_store.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import { comparePolicies, type PolicyComparison } from "../../policy/compare_policies.ts";
import { deepEqual } from "../../proxy/deep_equal.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import { describePlan } from "../changes/describe_plan.ts";
import { policyStateOf } from "../explain/policy_state_of.ts";
import {
  type PlannedNode,
  type PlanNodeDependencies,
  planObjects,
} from "../offline/plan_objects.ts";
import { readObjectsOnce } from "../offline/read_objects_once.ts";
import type { PlannedRoutingChange } from "../../routing/compare_planned_routing.ts";
import { compareRoutingPlans, readNewRouted } from "./what_if_routing.ts";
import { TimeSlice } from "../../os/time_slice.ts";

/** The changes of one ServicePort. */
export interface PlanChange {
  readonly key: ServicePortKey;
  readonly kind: "added" | "changed" | "removed";
  /** The differences, e.g. `2 -> 3 endpoints`. */
  readonly details: readonly string[];
}

export interface FamilyWhatIf {
  readonly family: IpFamily;
  readonly changes: readonly PlanChange[];
  /** Changes that concern all Services, in words. */
  readonly shared: readonly string[];
}

/** The changes of a node. */
export interface WhatIf {
  readonly before: PlannedNode;
  readonly families: readonly FamilyWhatIf[];
  /** The changes by IP family. Empty if no policies exist before and after. */
  readonly policies: readonly PolicyComparison[];
  /** The changes of addresses and routes. Absent if routing is disabled. */
  readonly routing?: readonly PlannedRoutingChange[];
  /** New objects that could not be used, one line each. */
  readonly problems: readonly string[];
}

interface WhatIfOptions {
  readonly before: PlannedNode;
  readonly configuration: LoadedConfiguration;
  /** Chooses the compared ServicePorts. @default {all} */
  readonly keys?: ((plan: ProxyPlan) => ReadonlySet<ServicePortKey>) | undefined;
}

/**
 * Plans the new objects for the same node, mode, settings and machine, without asking the machine. Keeps
 * the Nodes and ServiceCIDRs if the new objects have none, and the Services if they only have policies.
 * New pods, namespaces and policies come on top of the known ones.
 */
export async function planWhatIf(
  dependencies: PlanNodeDependencies,
  { before, configuration, keys }: WhatIfOptions,
): Promise<WhatIf> {
  const { mode, nodeName, machine } = before;
  const read = await readObjectsOnce(dependencies, { configuration, nodeName });
  const added = addMissing(before.informers, read.informers);
  const informers = await withAges(dependencies, before.informers, added);
  const routed = await readNewRouted(dependencies, { before, configuration, services: informers });
  const after = await planObjects(dependencies, {
    informers,
    configuration: before.configuration,
    mode,
    nodeName,
    families: [...before.plans.keys()],
    machine,
  });
  const families: FamilyWhatIf[] = [];
  for (const [family, plan] of before.plans) {
    const next = after.plans.get(family);
    if (next === undefined) continue;
    families.push(await compareFamily(dependencies, { plans: [plan, next], keys }));
  }
  const policies = comparePolicyObjects(before, read.informers);
  const routing = routed && !keys &&
    await compareRoutingPlans(before, { ...after, readRouted: () => Promise.resolve(routed) });
  return {
    ...{ before, families, policies },
    ...(routing && { routing }),
    problems: [...read.problems, ...after.problems],
  };
}

/** Compares policies for the pods and namespaces that there will be. */
function comparePolicyObjects(
  { informers, plans }: PlannedNode,
  added: InformerSet,
): readonly PolicyComparison[] {
  const after = policyStateOf(informers, added);
  const before = policyStateOf(informers, added);
  if (before === undefined || after === undefined) return [];
  const known = informers.kinds.has(NETWORK_POLICY.kind) ? informers.of(NETWORK_POLICY) : undefined;
  for (const key of [...before.policies.keys()]) before.setPolicy(key, known?.get(key));
  return [...plans.keys()].map((family) => comparePolicies([before, after], family));
}

/** The number of changed ServicePorts, shared values, kinds of connections, addresses and routes. */
export function countChanges({ families, policies, routing = [] }: WhatIf): number {
  return routing.length +
    families.reduce((sum, { changes, shared }) => sum + changes.length + shared.length, 0) +
    policies.reduce((sum, { changes }) => sum + changes.length, 0);
}

async function compareFamily(
  { clock }: PlanNodeDependencies,
  { plans, keys }: {
    readonly plans: readonly [before: ProxyPlan, after: ProxyPlan];
    readonly keys: WhatIfOptions["keys"];
  },
): Promise<FamilyWhatIf> {
  const [before, after] = plans;
  const chosen = keys && new Set([...keys(before), ...keys(after)]);
  const changed: ServicePortKey[] = [];
  const slice = new TimeSlice(clock);
  for (const key of new Set([...before.services.keys(), ...after.services.keys()])) {
    await slice.pause();
    if (chosen && !chosen.has(key)) continue;
    if (!isSame(before.services.get(key), after.services.get(key))) changed.push(key);
  }
  changed.sort();
  const changes = changed.map((key): PlanChange => {
    const [was, is] = [before.services.get(key), after.services.get(key)];
    return {
      key,
      kind: was === undefined ? "added" : is === undefined ? "removed" : "changed",
      details: is
        ? describePlan(was, is)
        : describePlan(undefined, was).map((word) => `had ${word}`),
    };
  });
  return { family: before.family, changes, shared: sharedTexts(before, after) };
}

/** Ignores the creation time: it only decides which Service is older. */
function isSame(was: ServicePlan | undefined, is: ServicePlan | undefined): boolean {
  if (was === undefined || is === undefined) return was === is;
  if (was.createdAt === is.createdAt) return deepEqual(was, is);
  const { createdAt: _, ...before } = was;
  const { createdAt: __, ...after } = is;
  return deepEqual(before, after);
}

function sharedTexts({ shared: was }: ProxyPlan, { shared: is }: ProxyPlan): readonly string[] {
  const list = (items: readonly string[]) => items.join(", ") || "none";
  const words: string[] = [];
  if (!deepEqual(was.serviceCidrs, is.serviceCidrs)) {
    words.push(`service ranges: ${list(was.serviceCidrs)} -> ${list(is.serviceCidrs)}`);
  }
  if (!deepEqual(was.nodePortAddresses, is.nodePortAddresses)) {
    const [before, after] = [list(was.nodePortAddresses), list(is.nodePortAddresses)];
    words.push(`addresses of node ports: ${before} -> ${after}`);
  }
  if (!deepEqual(was.localTraffic, is.localTraffic)) words.push("how local traffic is recognized");
  return words;
}

/** Gives the new objects the creation times that they would have in use: the older one precedes. */
async function withAges(
  { clock }: PlanNodeDependencies,
  before: InformerSet,
  after: InformerSet,
): Promise<InformerSet> {
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
  return after;
}

/**
 * A folder of Services often has no nodes, and one of policies no Services: the current ones stay
 * then.
 */
function addMissing(before: InformerSet, after: InformerSet): InformerSet {
  const ofServices = [SERVICE, ENDPOINT_SLICE, ENDPOINTS] as readonly KindSpec[];
  const hasPolicies = after.kinds.has(NETWORK_POLICY.kind) && after.of(NETWORK_POLICY).size > 0;
  const isOnlyPolicies = hasPolicies && ofServices.every((spec) => after.of(spec).size === 0);
  const kept = [NODE, SERVICE_CIDR, ...isOnlyPolicies ? ofServices : []] as readonly KindSpec[];
  for (const spec of kept) {
    if (after.of(spec).size > 0) continue;
    for (const object of before.of(spec).values()) after.of(spec).upsert(object);
  }
  return after;
}
