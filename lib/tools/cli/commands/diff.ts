import type { ProgramDependencies } from "../../../app/run/run_tools.ts";
import { ConfigurationError } from "../../../config/load.ts";
import { formatProblem } from "../../../kube/manifests/manifest_problem.ts";
import { askControl } from "../../control/control_client.ts";
import { differenceJson, differenceReport } from "../../diff/difference_report.ts";
import {
  type ChosenKeys,
  compareFamily,
  comparePolicyRules,
  compareRouting,
  countDifferences,
  type FamilyDifference,
  interfacesByAddress,
  isRepairFailed,
  type NodeDifference,
  type RoutingComparison,
} from "../../diff/node_difference.ts";
import { countChanges, planWhatIf, whatIfJson, whatIfReport } from "../../diff/what_if.ts";
import {
  checkService,
  checkServiceName,
  servicePortsOf,
} from "../../explain/find_service_ports.ts";
import { planNode, planRunningNode, wantedFamilies } from "../../offline/plan_node.ts";
import {
  type PlannedNode,
  type PlanNodeDependencies,
  planPolicies,
  planRouting,
} from "../../offline/planned_node.ts";
import { type CommandContext, logNotices, namesObjects, printAnswer } from "./command.ts";

/** Exit code if something differs, or would change. */
const DIFFERS = 3;

/**
 * Compares this machine with the plan of the running process, or with a dump. With `--manifests` or
 * a named cluster it compares the current plan with a plan of those objects instead.
 */
export async function diffVerb(
  edges: ProgramDependencies,
  context: CommandContext,
): Promise<number> {
  const { flags: { repair, from, service, family }, configuration, logger } = context;
  logNotices(context);
  const dependencies = { ...edges, logger };
  const isWhatIf = namesObjects(context.flags);
  if (repair && (isWhatIf || from !== undefined)) {
    throw new ConfigurationError([
      "Cannot use --repair with --from, --manifests, --kubeconfig or --master: a repair only " +
      "writes the plan of the running process",
    ]);
  }
  if (repair && service !== undefined) {
    throw new ConfigurationError([
      "Cannot use --repair with --service: a repair writes everything that differs in an IP " +
      "family; use 'kube-relay diff --service' to look, and --repair without it",
    ]);
  }
  const keys: ChosenKeys = service === undefined
    ? undefined
    : (plan) => servicePortsOf(plan, service);
  const families = wantedFamilies(family);
  if (isWhatIf) {
    const before = from === undefined
      ? await planRunningNode(dependencies, configuration.relay, families)
      : await planNode(dependencies, context);
    const whatIf = await planWhatIf(dependencies, before, configuration, keys);
    for (const problem of whatIf.problems) {
      dependencies.complain(`kube-relay: ${formatProblem(problem)}\n`);
    }
    printAnswer(dependencies, context, () => whatIfJson(whatIf), () => whatIfReport(whatIf));
    if (whatIf.problems.some(({ severity }) => severity === "error")) return 1;
    return countChanges(whatIf) === 0 ? 0 : DIFFERS;
  }
  let difference: NodeDifference;
  if (from !== undefined) {
    const planned = await planNode(dependencies, context);
    if (service !== undefined) {
      checkService(service, { plans: [...planned.plans.values()], all: planned.services });
    }
    difference = await comparePlanned(dependencies, context, planned, keys);
  } else {
    // The process checks everything else.
    if (service !== undefined) checkServiceName(service);
    const [only] = families.length === 1 ? families : [];
    const { controlSocket } = configuration.relay;
    difference = repair
      ? await askControl(controlSocket, "POST /difference", { family: only })
      : await askControl(controlSocket, "/difference", { family: only, service });
  }
  if (difference.families.some(({ isUnsettled }) => isUnsettled)) {
    dependencies.complain(
      "kube-relay: objects change faster than they can be compared; look again\n",
    );
  }
  const now = dependencies.clock.wallNow();
  printAnswer(
    dependencies,
    context,
    () => differenceJson(difference),
    () => differenceReport(difference, now, { isRepairable: from === undefined }),
  );
  if (isRepairFailed(difference)) return 1;
  if (countDifferences(difference) > 0) return DIFFERS;
  return difference.routing?.problem === undefined ? 0 : 1;
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
