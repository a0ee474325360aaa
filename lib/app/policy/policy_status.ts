/**
 * What the status and a dump say of NetworkPolicies.
 *
 * @module
 */
import type { NetworkPolicyConfiguration } from "../../config/network_policy.ts";
import type { ControllerStatus, DumpSection } from "../../controller/controller.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { PolicyState } from "../../policy/policy_state.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import { DUMPED_POLICIES } from "../dump/dump_policies.ts";
import type { PolicyBackend, PolicyTool } from "./policy_backend.ts";

/** What the controller knows. */
export interface ShownPolicies {
  readonly serviceMode: BackendMode;
  readonly tool: PolicyTool | undefined;
  readonly networkPolicy: NetworkPolicyConfiguration;
  readonly state: Pick<PolicyState, "pods" | "policies">;
  readonly families: readonly {
    readonly family: IpFamily;
    readonly backend: Pick<PolicyBackend, "inspect">;
    readonly loop: { readonly isComplete: boolean };
  }[];
  /** Whether pod ranges of this node are known. */
  readonly hasRanges: boolean;
}

/** The facts, each in one line. */
export function policyFacts(shown: ShownPolicies): ControllerStatus["facts"] {
  const { state, families, networkPolicy } = shown;
  const faulty = [...state.policies.values()].filter(({ problems }) => problems.length > 0);
  const texts = families.map(({ family, backend }) => {
    const { isolated: { ingress, egress }, lists, sets, members } = backend.inspect();
    const text = `${ingress} pods isolated for ingress, ${egress} for egress, ` +
      `${lists} rule lists, ${sets} sets with ${members} members`;
    return { name: families.length > 1 ? `Rules ${family}` : "Rules", text };
  });
  const notEnforced =
    "nothing: no NetworkPolicy is enforced; kube-relay doctor says what is missing";
  return [
    {
      name: "Policies",
      text: `${state.policies.size}, for ${state.pods.size} pods of the cluster` +
        (faulty.length > 0 ? `; ${faulty.length} with parts that cannot be used` : ""),
    },
    ...texts,
    { name: "Enforced by", text: families.length > 0 ? `${shown.tool}` : notEnforced },
    ...limits(shown),
    ...(networkPolicy.start === "closed" && !shown.hasRanges
      ? [{ name: "Pod start", text: "open: the Node has no pod ranges that could be closed" }]
      : []),
  ];
}

/** In userspace mode Services work without netfilter: pods may not be protected all the same. */
function limits({ serviceMode, families }: ShownPolicies): ControllerStatus["facts"] {
  const isEnforced = families.length > 0 && families.every(({ loop }) => loop.isComplete);
  if (!MODE_TRAITS[serviceMode].forwardsItself || isEnforced) return [];
  return [{ name: "Not covered", text: "direct pod-to-pod traffic is not covered" }];
}

/** What a dump adds to the objects. */
export function dumpedPolicies({ networkPolicy, tool, families }: ShownPolicies): DumpSection {
  const value = {
    ...(tool !== undefined && { tool }),
    families: families.map(({ family }) => family),
    settings: networkPolicy,
  };
  return { schema: DUMPED_POLICIES, value };
}
