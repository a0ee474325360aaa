/** The rules of NetworkPolicies of a node, from objects that were read. */
import { NODE } from "../../api/kinds/node.ts";
import { syncPeriodsOf } from "../../config/configuration.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import type { PolicyPlan } from "../../policy/policy_plan.ts";
import { PolicyPlanner } from "../../policy/policy_planner.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { policyStateOf } from "../explain/policy_state_of.ts";
import type { PolicyBackend, PolicyTool } from "../../app/policy/policy_backend.ts";
import { policySettings } from "../../app/policy/policy_settings.ts";
import type { PlannedNode } from "./plan_objects.ts";

/** The plan of one family, and the data plane that would write it. */
export interface PlannedPolicies {
  readonly tool: PolicyTool;
  readonly plan: PolicyPlan;
  /** Never started. */
  readonly backend: PolicyBackend;
}

/** Plans one family; `undefined` = policies are not enforced. */
export function planPolicies(
  dependencies: Dependencies & { readonly logger: Logger },
  { informers, nodeName, configuration: { proxy } }: Pick<
    PlannedNode,
    "configuration" | "informers" | "nodeName"
  >,
  { family, addresses = [] }: {
    readonly family: IpFamily;
    /** Those of the machine. @default {the machine is not known} */
    readonly addresses?: readonly InterfaceAddress[];
  },
): PlannedPolicies | undefined {
  const { networkPolicy } = proxy;
  const state = networkPolicy.enabled ? policyStateOf(informers) : undefined;
  const tool = networkPolicy.mode === "iptables" ? "iptables" : "nftables";
  const create = dependencies.policyBackends[tool];
  if (state === undefined) return undefined;
  const node = informers.of(NODE).get(nodeName);
  const settings = policySettings(networkPolicy, { family, node, addresses });
  const planner = new PolicyPlanner(state, { family, nodeName, ...settings });
  planner.update();
  const { syncPeriod: syncPeriodMs } = syncPeriodsOf(proxy, tool);
  return { tool, plan: planner.plan, backend: create(dependencies, { family, syncPeriodMs }) };
}
