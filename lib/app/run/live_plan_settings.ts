/**
 * Settings of the plan that can be replaced while the objects that use them keep running.
 *
 * @module
 */
import type { Node } from "../../api/kinds/node.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { NodeState } from "../../proxy/node_state.ts";
import type { PlanOptions } from "../../proxy/proxy_plan.ts";
import type { PlanSettings } from "./plan_settings.ts";

/** {@linkcode PlanSettings} that answer as the latest replacement. */
export class LivePlanSettings implements PlanSettings {
  #current: PlanSettings;

  constructor(current: PlanSettings) {
    this.#current = current;
  }

  /** Replaces the settings. The caller has to plan again. */
  replace(settings: PlanSettings): void {
    this.#current = settings;
  }

  nodeState(node: Node | undefined): NodeState {
    return this.#current.nodeState(node);
  }

  planOptions(family: IpFamily, node: NodeState): PlanOptions {
    return this.#current.planOptions(family, node);
  }
}
