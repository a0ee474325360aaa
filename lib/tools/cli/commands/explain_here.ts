import type { Dependencies } from "../../../app/dependencies.ts";
import { printableText } from "../../../log/printable_text.ts";
import { IP_FAMILIES } from "../../../net/ip_address.ts";
import { connectionTable } from "../../../policy/connection_table.ts";
import { explainPlanned } from "../../explain/explain_report.ts";
import {
  explainPlannedRouting,
  explainRunningRouting,
  parseRoutingQuestion,
  routingReport,
} from "../../explain/explain_routing.ts";
import { explanationReport } from "../../explain/explanation_view.ts";
import { tablesReport } from "../../explain/policy_table_report.ts";
import { planRunningNode } from "../../offline/plan_node.ts";
import { policyStateOf } from "../../offline/planned_node.ts";
import { type CommandContext, namesObjects, printAnswer } from "./command.ts";
import { planNamedObjects } from "./plan_named_objects.ts";

/**
 * Explains addresses and routes, all policies of a namespace, or packets by objects that are named. Exits
 * with status 1 if some of those objects could not be used.
 */
export async function explainHere(edges: Dependencies, context: CommandContext): Promise<number> {
  const { flags, operands = [], configuration: { relay }, logger } = context;
  const dependencies = { ...edges, logger };
  const [from = "", to = ""] = operands;
  const question = flags.policies === undefined ? parseRoutingQuestion(from, to) : undefined;
  const isRunning = flags.from === undefined && !namesObjects(flags);
  const planned = isRunning ? undefined : await planNamedObjects(dependencies, context);
  if (flags.policies !== undefined) {
    const namespace = flags.policies;
    // The work is done here, not in the running process: that one only gives its objects.
    const { informers } = planned ?? await planRunningNode(dependencies, relay);
    const state = policyStateOf(informers);
    if (!state) throw new Error("Cannot print policies: no pods and policies are known");
    const tables = IP_FAMILIES.map((family) => connectionTable(state, { namespace, family }))
      .filter(({ groups }) => groups.some((group) => group.namespace === namespace));
    if (tables.length === 0) {
      throw new Error(
        printableText(`Cannot print policies: no pod of namespace '${namespace}' is known`),
      );
    }
    printAnswer(dependencies, context, () => ({ tables }), () => tablesReport(tables));
  } else if (question) {
    const explained = planned
      ? await explainPlannedRouting(planned, question)
      : await explainRunningRouting(dependencies, relay, question);
    const { report, notes } = explained;
    printAnswer(
      dependencies,
      context,
      () => ({ ...report, notes }),
      () => routingReport(explained),
    );
  } else if (planned) {
    const notAsked = flags.from !== undefined
      ? "this is a dump; run explain on the node to ask its kernel"
      : "this is planned; without --manifests, --kubeconfig and --master a running kube-relay is asked";
    const ends = { from, to, ...(flags.sni !== undefined && { sni: flags.sni }) };
    const report = await explainPlanned(dependencies.clock, ends, planned, notAsked);
    printAnswer(dependencies, context, () => report, () => explanationReport(report));
  }
  return planned?.isIncomplete ? 1 : 0;
}
