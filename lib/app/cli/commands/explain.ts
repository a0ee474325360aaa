import { askControl } from "../../control/control_client.ts";
import type { Dependencies } from "../../dependencies.ts";
import { explainPlanned } from "../../explain/explain_planned.ts";
import type { ExplainReport } from "../../explain/explain_report.ts";
import { renderExplanation } from "../../explain/explanation_view.ts";
import { FROM_FORMS, parseFrom, parseTo, TO_FORMS } from "../../explain/packet_end_text.ts";
import { planNode } from "../../offline/planned_node.ts";
import { printableText } from "../../../log/printable_text.ts";
import { usesColor } from "../uses_color.ts";
import type { ActiveCommand, CommandContext } from "./command.ts";

/** Both ends, as they were given. */
interface Ends {
  readonly from: string;
  readonly to: string;
}

/**
 * Explains by the running process or, where `--manifests`, a kubeconfig or `--from` name something
 * else, by a plan of that. What of those could not be used is named on standard error, and then the
 * exit code is 1.
 */
export const explainCommand: ActiveCommand = {
  name: "explain",
  summary: "explain what happens to a packet from FROM to TO, step by step",
  operands: [{ name: "FROM", help: FROM_FORMS }, { name: "TO", help: TO_FORMS }],
  examples: [
    "kube-relay explain 10.244.1.7 default/web:http",
    "kube-relay explain outside node:30080",
    "kube-relay explain node 10.96.0.10:53/UDP --json",
    "kube-relay explain outside default/web --manifests DIR --mode nftables",
  ],
  async run(dependencies, context) {
    const [from = "", to = ""] = context.operands ?? [];
    // Here already, so that what is written wrong is wrong use wherever it is looked up.
    parseFrom(from);
    parseTo(to);
    const { report, isIncomplete } = await explain(dependencies, context, { from, to });
    const { print, process } = dependencies;
    print(
      context.flags.json
        ? `${JSON.stringify(report, undefined, 2)}\n`
        : renderExplanation(report, { columns: process.columns, color: usesColor(process) }),
    );
    return isIncomplete ? 1 : 0;
  },
};

async function explain(
  dependencies: Dependencies,
  context: CommandContext,
  ends: Ends,
): Promise<{ readonly report: ExplainReport; readonly isIncomplete: boolean }> {
  const { flags, configuration: { relay, notices }, logger } = context;
  const given = [flags.from, flags.manifests, flags.kubeconfig, flags.master];
  if (given.every((value) => value === undefined)) {
    const query = new URLSearchParams({ ...ends });
    const report = await askControl(relay.controlSocket, { route: `/explain?${query}` });
    return { report: report as ExplainReport, isIncomplete: false };
  }
  for (const { level, message, fields } of notices) logger[level](message, fields);
  const planned = await planNode({ ...dependencies, logger }, context);
  for (const problem of planned.problems) {
    dependencies.complain(`kube-relay: ${printableText(problem)}\n`);
  }
  const notAsked = flags.from !== undefined
    ? "this is a dump; ask on the node itself for what its kernel has now"
    : "this is planned; without --manifests, --kubeconfig and --master a running kube-relay is asked";
  const report = await explainPlanned(dependencies, ends, { planned, notAsked });
  return { report, isIncomplete: planned.isIncomplete };
}
