import { dirname } from "node:path";
import { ConfigurationError, type LoadedConfiguration } from "../../../config/load.ts";
import { IP_FAMILIES, type IpFamily } from "../../../net/ip_address.ts";
import { lockFolder } from "../../../os/folder_lock.ts";
import type { ProxyPlan } from "../../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../../proxy/service_port_name.ts";
import { requestDifference, requestStatus } from "../../control/control_client.ts";
import { differenceJson } from "../../diff/diff_json.ts";
import { renderDifference } from "../../diff/diff_view.ts";
import { compareNode, countDifferences, type RepairRunner } from "../../diff/node_difference.ts";
import { reportedRepairs } from "../../diff/reported_repairs.ts";
import { lookSettled, type SettledLook } from "../../diff/settled_node.ts";
import { countChanges, planWhatIf } from "../../diff/what_if.ts";
import { renderWhatIf, whatIfJson } from "../../diff/what_if_view.ts";
import {
  checkService,
  checkServiceName,
  servicePortsOf,
} from "../../explain/find_service_ports.ts";
import { planRunningNode } from "../../offline/plan_running_node.ts";
import {
  type PlannedNode,
  planNode,
  type PlanNodeDependencies,
} from "../../offline/planned_node.ts";
import type { StatusReport } from "../../status/status_report.ts";
import { usesColor } from "../uses_color.ts";
import type { ActiveCommand, CommandContext } from "./command.ts";

/** Repairs wait for each other, and not for ever: the folder may be anybody's. */
const LOCK_MS = 30_000;
/** Exit code where something differs, or would change. */
const DIFFERS = 3;

/**
 * Compares this machine with what the running process wants, or with a dump. With `--manifests`, or a
 * cluster that is named, the machine is not asked: the objects there are planned as this node would.
 */
export const diffCommand: ActiveCommand = {
  name: "diff",
  summary: "compare the kernel with the plan, repair it, or show what other objects would change",
  examples: [
    "kube-relay diff",
    "kube-relay diff --repair",
    "kube-relay diff --service default/web --json",
    "kube-relay diff --manifests DIR",
    "kube-relay diff --from node7.json --manifests DIR",
  ],
  async run({ complain, ...rest }, context) {
    const { flags, configuration: { notices }, logger } = context;
    for (const { level, message, fields } of notices) logger[level](message, fields);
    const dependencies = { ...rest, complain, logger };
    const asksWhatIf = namesObjects(context);
    if (flags.repair && (asksWhatIf || flags.from !== undefined)) {
      throw new ConfigurationError([
        "Cannot use --repair with --from, --manifests, --kubeconfig or --master: only what the " +
        "running process wants is ever written",
      ]);
    }
    return asksWhatIf
      ? await tellWhatIf(dependencies, context)
      : await tellDifference(dependencies, context);
  },
};

function namesObjects({ flags }: CommandContext): boolean {
  return [flags.manifests, flags.kubeconfig, flags.master].some((given) => given !== undefined);
}

async function tellDifference(
  dependencies: PlanNodeDependencies,
  context: CommandContext,
): Promise<number> {
  const { clock, print, complain, process } = dependencies;
  const { flags } = context;
  const { difference, isUnsettled } = await look(dependencies, context);
  if (isUnsettled) {
    complain("kube-relay: objects change faster than they can be compared; look again\n");
  }
  const { columns } = process;
  print(
    flags.json
      ? `${JSON.stringify(differenceJson(difference), undefined, 2)}\n`
      : renderDifference(difference, {
        columns,
        color: usesColor(process),
        now: clock.wallNow(),
      }),
  );
  return countDifferences(difference) === 0 ? 0 : DIFFERS;
}

async function look(
  dependencies: PlanNodeDependencies,
  context: CommandContext,
): Promise<SettledLook> {
  const { flags, configuration: { relay } } = context;
  const { service } = flags;
  const keys = chosenService(service);
  const compare = (planned: PlannedNode, repair?: RepairRunner) => {
    checkChosen(service, [planned]);
    return compareNode(planned, { ...(keys && { keys }), ...(repair && { repair }) });
  };
  if (flags.from !== undefined) {
    const planned = await planNode(dependencies, context);
    return { difference: await compare(planned), isUnsettled: false };
  }
  const families = wantedFamilies(flags.family);
  const { controlSocket } = relay;
  if (!flags.repair) {
    // Who asks a process is told by it, but for what is wrong on the command line.
    if (service !== undefined) checkServiceName(service);
    const [family] = families.length === 1 ? families : [];
    const ask = () => requestDifference(controlSocket, { family, service });
    return await lookSettled(dependencies, { relay, look: ask, writes: false });
  }
  const signal = context.endInOrder();
  // Two at once take away what the other has taken, or add a jump twice.
  using _alone = await lockFolder(dependencies, dirname(controlSocket), { maxMs: LOCK_MS, signal });
  const repair = reportedRepairs(dependencies, controlSocket);
  const mend = async () => {
    const planned = await planRunningNode(dependencies, { relay, families });
    return await compare(await withServing(planned, relay), repair);
  };
  return await lookSettled(dependencies, { relay, signal, look: mend, writes: true });
}

async function tellWhatIf(
  dependencies: PlanNodeDependencies,
  context: CommandContext,
): Promise<number> {
  const { print, complain, process } = dependencies;
  const { flags, configuration } = context;
  const before = await planBefore(dependencies, context, configuration.relay);
  const keys = chosenService(flags.service);
  const whatIf = await planWhatIf(dependencies, { before, configuration, keys });
  for (const problem of whatIf.problems) complain(`kube-relay: ${problem}\n`);
  const { columns } = process;
  print(
    flags.json
      ? `${JSON.stringify(whatIfJson(whatIf), undefined, 2)}\n`
      : renderWhatIf(whatIf, { columns, color: usesColor(process) }),
  );
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

function chosenService(
  service: string | undefined,
): ((plan: ProxyPlan) => ReadonlySet<ServicePortKey>) | undefined {
  return service === undefined ? undefined : (plan) => servicePortsOf(plan, service);
}

function checkChosen(service: string | undefined, planned: readonly PlannedNode[]): void {
  if (service === undefined) return;
  const plans = planned.flatMap((each) => [...each.plans.values()]);
  checkService(service, { plans, all: new Set(planned.flatMap((each) => [...each.services])) });
}

function wantedFamilies(word: string | undefined): readonly IpFamily[] {
  const wanted = word?.toLowerCase();
  return IP_FAMILIES.filter((family) => wanted === undefined || family.toLowerCase() === wanted);
}

/** The node with what its process says of its sockets; in modes of the kernel nobody is asked. */
async function withServing(
  planned: PlannedNode,
  { controlSocket }: Pick<LoadedConfiguration["relay"], "controlSocket">,
): Promise<PlannedNode> {
  if (planned.mode !== "userspace") return planned;
  const { families } = await requestStatus(controlSocket);
  const { machine } = planned;
  return {
    ...planned,
    machine(family) {
      const status = families.find((each) => each.family === family);
      return { ...machine(family), ...(status && servingOf(status)) };
    },
  };
}

function servingOf({ services, quarantined }: StatusReport["families"][number]) {
  const serving = services.map(({ name, protocol, addresses }) => ({
    key: `${name}/${protocol}` as ServicePortKey,
    addresses,
  }));
  return { quarantined, serving };
}
