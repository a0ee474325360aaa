import type { ProgramDependencies } from "../../../app/run/run_tools.ts";
import { printableText } from "../../../log/printable_text.ts";
import { IP_FAMILIES } from "../../../net/ip_address.ts";
import { connectionTable } from "../../../policy/connection_table.ts";
import { askControl } from "../../control/control_client.ts";
import type { Dependencies } from "../../../app/dependencies.ts";
import {
  explainPlanned,
  type ExplainReport,
  explanationReport,
} from "../../explain/explain_report.ts";
import {
  explainPlannedRouting,
  explainRunningRouting,
  parseRoutingQuestion,
  type RoutingQuestion,
  routingReport,
} from "../../explain/explain_routing.ts";
import { parseFrom, parsePodName, parseTo } from "../../explain/packet_ends.ts";
import { policyStateOf } from "../../explain/policy_state_of.ts";
import { tablesReport } from "../../explain/policy_table_report.ts";
import { planRunningNode } from "../../offline/planned_node.ts";
import { type CommandContext, namesObjects, planNamedObjects, printAnswer } from "./command.ts";

/** Both ends of a packet, as on the command line. */
interface Ends {
  readonly from: string;
  readonly to: string;
}

/**
 * Asks the running process or, with `--manifests`, a kubeconfig or `--from`, makes its own plan. Exits with
 * status 1 if some of those objects could not be used.
 */
export async function explainVerb(
  dependencies: ProgramDependencies,
  context: CommandContext,
): Promise<number> {
  const { policies } = context.flags;
  if (policies !== undefined) return await printTables(dependencies, context, policies);
  const [from = "", to = ""] = context.operands ?? [];
  const question = parseRoutingQuestion(from, to);
  if (question) return await printRouting(dependencies, context, question);
  // Checked here, so that a wrong operand is wrong use with every source.
  if (parsePodName(from) === undefined) parseFrom(from);
  parseTo(to);
  const { report, isIncomplete } = await explain(dependencies, context, { from, to });
  printAnswer(dependencies, context, () => report, () => explanationReport(report));
  return isIncomplete ? 1 : 0;
}

async function explain(
  dependencies: Dependencies,
  context: CommandContext,
  ends: Ends,
): Promise<{ readonly report: ExplainReport; readonly isIncomplete: boolean }> {
  const { flags, configuration: { relay } } = context;
  if (flags.from === undefined && !namesObjects(flags)) {
    const report = await askControl(relay.controlSocket, "/explain", ends);
    return { report, isIncomplete: false };
  }
  const planned = await planNamedObjects(dependencies, context);
  const notAsked = flags.from !== undefined
    ? "this is a dump; run explain on the node to ask its kernel"
    : "this is planned; without --manifests, --kubeconfig and --master a running kube-relay is asked";
  const report = await explainPlanned(dependencies.clock, ends, planned, notAsked);
  return { report, isIncomplete: planned.isIncomplete };
}

async function printRouting(
  dependencies: Dependencies,
  context: CommandContext,
  question: RoutingQuestion,
): Promise<number> {
  const { flags, configuration: { relay }, logger } = context;
  const isRunning = flags.from === undefined && !namesObjects(flags);
  const planned = isRunning ? undefined : await planNamedObjects(dependencies, context);
  const explained = planned
    ? await explainPlannedRouting(planned, { question })
    : await explainRunningRouting({ ...dependencies, logger }, { question, relay });
  const { report, notes } = explained;
  printAnswer(dependencies, context, () => ({ ...report, notes }), () => routingReport(explained));
  return planned?.isIncomplete ? 1 : 0;
}

/** The work is done here, not in the running process: that one only gives its objects. */
async function printTables(
  dependencies: Dependencies,
  context: CommandContext,
  namespace: string,
): Promise<number> {
  const { flags, configuration: { relay }, logger } = context;
  const planned = flags.from === undefined && !namesObjects(flags)
    ? await planRunningNode({ ...dependencies, logger }, { relay })
    : await planNamedObjects(dependencies, context);
  const state = policyStateOf(planned.informers);
  if (state === undefined) throw new Error("Cannot print policies: no pods and policies are known");
  const tables = IP_FAMILIES.map((family) => connectionTable(state, { namespace, family }))
    .filter(({ groups }) => groups.some((group) => group.namespace === namespace));
  if (tables.length === 0) {
    throw new Error(
      printableText(`Cannot print policies: no pod of namespace '${namespace}' is known`),
    );
  }
  printAnswer(dependencies, context, () => ({ tables }), () => tablesReport(tables));
  return planned.isIncomplete ? 1 : 0;
}
