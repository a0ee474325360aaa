/**
 * What the tools have for each controller besides that of Services: its routes on the control
 * socket, and its section of a dump.
 *
 * @module
 */
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { NetworkPolicyController } from "../../app/policy/policy_controller.ts";
import { RoutingController } from "../../app/routing/routing_controller.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import type { Controller } from "../../engine/controller.ts";
import { OneAtATime } from "../../net/one_at_a_time.ts";
import type { ChangeLog } from "../changes/change_log.ts";
import { answerPolicyDifference } from "../diff/compare_policy_rules.ts";
import { DUMPED_POLICIES } from "../dump/dump_schema.ts";
import { dumpedRouting } from "../dump/dump_routing.ts";
import type { DumpSection } from "../dump/dump_value.ts";
import { routingRoutes } from "../explain/routing_questions.ts";
import type { ControlRoutes } from "./control_server.ts";

/** Returns the tools of a controller. */
export type ToolsOf = typeof controllerTools;

/** The tools of one controller. */
export interface ControllerTools {
  readonly routes: ControlRoutes;
  /** The inputs of its plan other than objects. */
  dumped(): DumpSection;
}

/** Returns the tools of a controller of this build. */
export function controllerTools(
  controller: Controller,
  { current, startUp }: Pick<ObservedRun, "current" | "startUp">,
  edges: Pick<Dependencies, "clock" | "network">,
  changes: Pick<ChangeLog, "repaired">,
): ControllerTools {
  if (controller instanceof NetworkPolicyController) {
    const turns = new OneAtATime();
    return {
      routes: {
        "/policy/difference": (query) =>
          answerPolicyDifference(edges.clock, controller.families, query),
        "POST /policy/difference": (query) =>
          turns.run(() => answerPolicyDifference(edges.clock, controller.families, query, changes)),
      },
      dumped() {
        const { tool, families } = controller;
        const value = {
          ...(tool !== undefined && { tool }),
          families: families.map(({ family }) => family),
        };
        const { networkPolicy } = current.proxy;
        return { schema: DUMPED_POLICIES, value, settings: { networkPolicy } };
      },
    };
  }
  if (!(controller instanceof RoutingController)) {
    throw new TypeError(`Cannot find the tools of the controller '${controller.name}'`);
  }
  const { bgp, informers, layer2, pods } = controller;
  return {
    routes: routingRoutes({
      bgp,
      pods,
      held: () => controller.held,
      layer2: () => layer2?.compared ?? { owned: new Set(), others: [] },
      interfaceAddresses: () => edges.network.interfaceAddresses(),
    }),
    dumped: () =>
      dumpedRouting({
        routing: current.proxy.routing,
        nodeName: startUp.node.name,
        nodes: informers.of(ROUTED_NODE),
        services: informers.of(ROUTED_SERVICE),
        ...{ live: layer2?.live, reports: layer2?.reports },
        isDraining: bgp?.isDraining ?? false,
        networks: controller.networks,
      }),
  };
}
