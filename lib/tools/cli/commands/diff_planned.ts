import type { Dependencies } from "../../../app/dependencies.ts";
import { formatProblem } from "../../../kube/manifests/manifest_problem.ts";
import {
  type ChosenKeys,
  compareFamily,
  comparePolicyRules,
  compareRouting,
  type FamilyDifference,
  interfacesByAddress,
  type NodeDifference,
  type RoutingComparison,
} from "../../diff/node_difference.ts";
import { countChanges, planWhatIf, whatIfJson, whatIfReport } from "../../diff/what_if.ts";
import { checkService, servicePortsOf } from "../../explain/find_service_ports.ts";
import { planNode, planRunningNode } from "../../offline/plan_node.ts";
import {
  type PlannedNode,
  type PlanNodeDependencies,
  planPolicies,
  planRouting,
} from "../../offline/planned_node.ts";
import { wantedFamilies } from "../../offline/wanted_families.ts";
import { type CommandContext, printAnswer } from "./command.ts";

/** Prints what the named objects would change. `isComplete`: none has an error. */
export async function showWhatIf(
  edges: Dependencies,
  context: CommandContext,
): Promise<{ readonly changes: number; readonly isComplete: boolean }> {
  const { flags: { from, service, family }, configuration, logger } = context;
  const dependencies = { ...edges, logger };
  const before = from === undefined
    ? await planRunningNode(dependencies, configuration.relay, wantedFamilies(family))
    : await planNode(dependencies, context);
  const whatIf = await planWhatIf(dependencies, before, configuration, keysOf(service));
  for (const problem of whatIf.problems) {
    dependencies.complain(`kube-relay: ${formatProblem(problem)}\n`);
  }
  printAnswer(dependencies, context, () => whatIfJson(whatIf), () => whatIfReport(whatIf));
  return {
    changes: countChanges(whatIf),
    isComplete: !whatIf.problems.some(({ severity }) => severity === "error"),
  };
}

function keysOf(service: string | undefined): ChosenKeys {
  return service === undefined ? undefined : (plan) => servicePortsOf(plan, service);
}

/** Compares this machine with a dump. */
export async function compareDump(
  edges: Dependencies,
  context: CommandContext,
): Promise<NodeDifference> {
  const { flags: { service }, logger } = context;
  const dependencies = { ...edges, logger };
  const planned = await planNode(dependencies, context);
  if (service !== undefined) {
    checkService(service, { plans: [...planned.plans.values()], all: planned.services });
  }
  return await comparePlanned(dependencies, context, planned, keysOf(service));
}

/** Compares this machine with a dump; `keys`: only those of Services. */
async function comparePlanned(
  dependencies: PlanNodeDependencies,
  context: CommandContext,
  planned: PlannedNode,
  keys: ChosenKeys,
): Promise<NodeDifference> {
  const { mode, nodeName, plans, machine, createBackend } = planned;
  const routing = keys ? undefined : await comparePlannedRouting(dependencies, context, planned);
  const families: FamilyDifference[] = [];
  for (const [family, plan] of plans) {
    await using backend = createBackend(family);
    families.push(await compareFamily(backend, plan, keys, machine(family)));
  }
  const addresses = dependencies.network.interfaceAddresses();
  for (const family of keys ? [] : plans.keys()) {
    const policies = planPolicies(dependencies, planned, family, addresses);
    if (policies === undefined) continue;
    await using backend = policies.backend;
    families.push(await comparePolicyRules(backend, policies.plan));
  }
  return { mode, nodeName, families, ...(routing && { routing }) };
}

/** The paths of the BGP daemon are those of this configuration. */
async function comparePlannedRouting(
  dependencies: PlanNodeDependencies,
  { configuration: { proxy: { routing } } }: CommandContext,
  planned: PlannedNode,
): Promise<RoutingComparison | undefined> {
  const { network, routingBackends } = dependencies;
  const wanted = await planRouting(planned);
  if (!wanted) return undefined;
  const owned = new Set(wanted.owners.ownedBy(wanted.nodeName));
  const others = [...wanted.owners.addresses].filter((address) => !owned.has(address));
  const layer2 = { owned, others, found: interfacesByAddress(network.interfaceAddresses()) };
  if (!routingBackends) return await compareRouting({ layer2 });
  await using pods = routingBackends.podNetwork(dependencies, { cniFiles: [] });
  await using backend = routingBackends.bgp(dependencies, routing.bgp);
  return await compareRouting({
    ...(wanted.bgp && { bgp: { plan: wanted.bgp.plan, backend } }),
    ...{ layer2, pods: { plan: wanted.podNetwork, backend: pods } },
  });
}
