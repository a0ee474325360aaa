import type { Dependencies } from "../../../app/dependencies.ts";
import { formatProblem } from "../../../kube/manifests/manifest_problem.ts";
import { planNode } from "../../offline/plan_node.ts";
import type { PlannedNode } from "../../offline/planned_node.ts";
import { type CommandContext, logNotices } from "./command.ts";

/** Plans the objects that the flags name, and prints their problems to standard error. */
export async function planNamedObjects(
  dependencies: Dependencies,
  context: CommandContext,
): Promise<PlannedNode> {
  logNotices(context);
  const planned = await planNode({ ...dependencies, logger: context.logger }, context);
  for (const problem of planned.problems) {
    dependencies.complain(`kube-relay: ${formatProblem(problem)}\n`);
  }
  return planned;
}
