import type { Machine } from "../../../app/run/run_tools.ts";
import { ConfigurationError } from "../../../config/configuration_error.ts";
import { askControl } from "../../control/control_client.ts";
import { differenceJson, differenceReport } from "../../diff/difference_report.ts";
import {
  countDifferences,
  isRepairFailed,
  type NodeDifference,
} from "../../diff/node_difference.ts";
import { checkServiceName } from "../../explain/find_service_ports.ts";
import { wantedFamilies } from "../../offline/wanted_families.ts";
import { type CommandContext, logNotices, namesObjects, printAnswer } from "./command.ts";

/** Exit code if something differs, or would change. */
const DIFFERS = 3;

/**
 * Compares this machine with the plan of the running process, or with a dump. With `--manifests` or
 * a named cluster it compares the current plan with a plan of those objects instead.
 */
export async function diffVerb(machine: Machine, context: CommandContext): Promise<number> {
  const { flags: { repair, from, service, family }, configuration } = context;
  logNotices(context);
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
  if (isWhatIf) {
    const { showWhatIf } = await import("../planning_verbs.ts");
    const { changes, isComplete } = await showWhatIf(await machine.loadAll(), context);
    if (!isComplete) return 1;
    return changes === 0 ? 0 : DIFFERS;
  }
  let difference: NodeDifference;
  if (from !== undefined) {
    const { compareDump } = await import("../planning_verbs.ts");
    difference = await compareDump(await machine.loadAll(), context);
  } else {
    // The process checks everything else.
    if (service !== undefined) checkServiceName(service);
    const families = wantedFamilies(family);
    const [only] = families.length === 1 ? families : [];
    const { controlSocket } = configuration.relay;
    difference = repair
      ? await askControl(controlSocket, "POST /difference", { family: only })
      : await askControl(controlSocket, "/difference", { family: only, service });
  }
  if (difference.families.some(({ isUnsettled }) => isUnsettled)) {
    machine.complain(
      "kube-relay: objects change faster than they can be compared; look again\n",
    );
  }
  const now = machine.clock.wallNow();
  printAnswer(
    machine,
    context,
    () => differenceJson(difference),
    () => differenceReport(difference, now, { isRepairable: from === undefined }),
  );
  if (isRepairFailed(difference)) return 1;
  if (countDifferences(difference) > 0) return DIFFERS;
  return difference.routing?.problem === undefined ? 0 : 1;
}
