import { checkService, servicePortsOf } from "../../explain/find_service_ports.ts";
import {
  type PlannedNode,
  planNode,
  type PlanNodeDependencies,
} from "../../offline/planned_node.ts";
import { renderHeading } from "../../offline/render_heading.ts";
import type { ActiveCommand, CommandContext } from "./command.ts";

/**
 * Prints the rules. What of the objects could not be used is named on standard error and left out,
 * as a proxy does; then the exit code is 1 although the rest was printed, so that no script takes it
 * for everything.
 */
export const renderCommand: ActiveCommand = {
  name: "render",
  summary: "print what would be applied for all Services, without touching the machine",
  examples: [
    "kube-relay render --mode iptables --manifests DIR --family ipv4",
    "kube-relay render --mode iptables --kubeconfig FILE --service default/web",
    "kube-relay render --from node7.json",
  ],
  async run({ complain, ...rest }, context) {
    const { flags, configuration: { notices }, logger } = context;
    for (const { level, message, fields } of notices) logger[level](message, fields);
    const dependencies = { ...rest, complain, logger };
    const planned = await planNode(dependencies, context);
    for (const problem of planned.problems) complain(`kube-relay: ${problem}\n`);
    if (flags.service !== undefined) {
      checkService(flags.service, {
        plans: [...planned.plans.values()],
        all: planned.services,
      });
    }
    await print(dependencies, { planned, context });
    return planned.isIncomplete ? 1 : 0;
  },
};

async function print(
  { clock, print }: PlanNodeDependencies,
  { planned, context: { flags } }: {
    readonly planned: PlannedNode;
    readonly context: CommandContext;
  },
): Promise<void> {
  const { plans, createBackend, mode, nodeName, isNodeKnown, isMachineKnown } = planned;
  for (const [family, plan] of plans) {
    await using backend = createBackend(family);
    const { service } = flags;
    const keys = service === undefined ? undefined : servicePortsOf(plan, service);
    const asksKernel = backend.usesConntrack && !isMachineKnown;
    print(
      renderHeading({ mode, nodeName, isNodeKnown, family, plan, asksKernel, keys, service }),
    );
    for (const piece of backend.render(plan, keys)) {
      print(piece);
      await clock.yieldToEventLoop();
    }
  }
}
