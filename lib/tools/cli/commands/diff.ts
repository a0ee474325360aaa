import type { ProgramDependencies } from "../../../app/run/run_tools.ts";
import { ConfigurationError, type LoadedConfiguration } from "../../../config/load.ts";
import { askControl } from "../../control/control_client.ts";
import { compareRouting, layer2Of, type RoutingComparison } from "../../diff/compare_routing.ts";
import { planRouting } from "../../offline/plan_routing.ts";
import { differenceJson, differenceReport } from "../../diff/difference_report.ts";
import {
  type ChosenKeys,
  compareNode,
  comparePolicyRules,
  countDifferences,
  type FamilyDifference,
  isRepairFailed,
  type NodeDifference,
} from "../../diff/node_difference.ts";
import { countChanges, planWhatIf } from "../../diff/what_if.ts";
import { whatIfJson, whatIfReport } from "../../diff/what_if_report.ts";
import {
  checkService,
  checkServiceName,
  servicePortsOf,
} from "../../explain/find_service_ports.ts";
import { planNode, planRunningNode, wantedFamilies } from "../../offline/planned_node.ts";
import type { PlannedNode, PlanNodeDependencies } from "../../offline/plan_objects.ts";
import { planPolicies } from "../../offline/planned_policies.ts";
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
  const { flags, logger } = context;
  logNotices(context);
  const dependencies = { ...edges, logger };
  const isWhatIf = namesObjects(flags);
  if (flags.repair && (isWhatIf || flags.from !== undefined)) {
    throw new ConfigurationError([
      "Cannot use --repair with --from, --manifests, --kubeconfig or --master: a repair only " +
      "writes the plan of the running process",
    ]);
  }
  if (flags.repair && flags.service !== undefined) {
    throw new ConfigurationError([
      "Cannot use --repair with --service: a repair writes everything that differs in an IP " +
      "family; use 'kube-relay diff --service' to look, and --repair without it",
    ]);
  }
  return isWhatIf
    ? await printWhatIf(dependencies, context)
    : await printDifference(dependencies, context);
}

async function printDifference(
  dependencies: PlanNodeDependencies,
  context: CommandContext,
): Promise<number> {
  const difference = await look(dependencies, context);
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
    () => differenceReport(difference, now, { isRepairable: context.flags.from === undefined }),
  );
  if (isRepairFailed(difference)) return 1;
  if (countDifferences(difference) > 0) return DIFFERS;
  return difference.routing?.problem === undefined ? 0 : 1;
}

async function look(
  dependencies: PlanNodeDependencies,
  context: CommandContext,
): Promise<NodeDifference> {
  const { flags, configuration: { relay } } = context;
  const { service } = flags;
  if (flags.from === undefined) {
    // The process checks everything else.
    if (service !== undefined) checkServiceName(service);
    const families = wantedFamilies(flags.family);
    const [family] = families.length === 1 ? families : [];
    return flags.repair
      ? await askControl(relay.controlSocket, "POST /difference", { family })
      : await askControl(relay.controlSocket, "/difference", { family, service });
  }
  const planned = await planNode(dependencies, context);
  if (service !== undefined) {
    checkService(service, { plans: [...planned.plans.values()], all: planned.services });
    return await compareNode(planned, chosenService(service));
  }
  const routing = await comparePlannedRouting(dependencies, context, planned);
  const services = await compareNode(planned, undefined);
  const policies = await comparePolicies(dependencies, planned);
  return {
    ...services,
    families: [...services.families, ...policies],
    ...(routing && { routing }),
  };
}

/** Compares this machine with a dump. The paths of the BGP daemon are those of this configuration. */
async function comparePlannedRouting(
  dependencies: PlanNodeDependencies,
  { configuration: { proxy: { routing } } }: CommandContext,
  planned: PlannedNode,
): Promise<RoutingComparison | undefined> {
  const { network, routingBackends } = dependencies;
  const wanted = await planRouting(planned);
  if (!wanted) return undefined;
  const layer2 = layer2Of(wanted, network.interfaceAddresses());
  if (!routingBackends) return await compareRouting({ layer2 });
  await using pods = routingBackends.podNetwork(dependencies, { cniFiles: [] });
  await using backend = routingBackends.bgp(dependencies, routing.bgp);
  return await compareRouting({
    ...(wanted.bgp && { bgp: { plan: wanted.bgp.plan, backend } }),
    ...{ layer2, pods: { plan: wanted.podNetwork, backend: pods } },
  });
}

/** Compares the rules of NetworkPolicies with objects that were read; empty if none are enforced. */
async function comparePolicies(
  dependencies: PlanNodeDependencies,
  planned: PlannedNode,
): Promise<readonly FamilyDifference[]> {
  const families: FamilyDifference[] = [];
  const addresses = dependencies.network.interfaceAddresses();
  for (const family of planned.plans.keys()) {
    const policies = planPolicies(dependencies, planned, { family, addresses });
    if (policies === undefined) continue;
    await using backend = policies.backend;
    families.push(await comparePolicyRules(backend, policies.plan));
  }
  return families;
}

async function printWhatIf(
  dependencies: PlanNodeDependencies,
  context: CommandContext,
): Promise<number> {
  const { flags, configuration } = context;
  const before = await planBefore(dependencies, context, configuration.relay);
  const keys = chosenService(flags.service);
  const whatIf = await planWhatIf(dependencies, { before, configuration, keys });
  for (const problem of whatIf.problems) dependencies.complain(`kube-relay: ${problem}\n`);
  printAnswer(dependencies, context, () => whatIfJson(whatIf), () => whatIfReport(whatIf));
  if (whatIf.problems.length > 0) return 1;
  return countChanges(whatIf) === 0 ? 0 : DIFFERS;
}

function planBefore(
  dependencies: PlanNodeDependencies,
  context: CommandContext,
  relay: LoadedConfiguration["relay"],
): Promise<PlannedNode> {
  if (context.flags.from !== undefined) return planNode(dependencies, context);
  return planRunningNode(dependencies, { relay, families: wantedFamilies(context.flags.family) });
}

function chosenService(service: string | undefined): ChosenKeys {
  return service === undefined ? undefined : (plan) => servicePortsOf(plan, service);
}
