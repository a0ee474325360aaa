import type { NetworkPolicyConfiguration } from "../../config/network_policy.ts";
import type { ControllerStatus } from "../../engine/controller.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { DeniedPackets, PolicyInspection } from "../../policy/inspect_policy_plan.ts";
import type { PolicyState } from "../../policy/policy_state.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import { countText } from "../../log/count_text.ts";
import type { PolicyTool } from "./policy_backend.ts";

/** The state of the controller that status shows. */
export interface ShownPolicies {
  readonly serviceMode: BackendMode;
  readonly tool: PolicyTool | undefined;
  readonly networkPolicy: NetworkPolicyConfiguration;
  readonly state: Pick<PolicyState, "pods" | "policies">;
  readonly families: readonly {
    readonly family: IpFamily;
    readonly inspect: () => PolicyInspection;
    readonly loop: { readonly isComplete: boolean };
  }[];
  /** Whether pod ranges of this node are known. */
  readonly hasRanges: boolean;
}

/** The facts, each in one line. */
export function policyFacts(shown: ShownPolicies): ControllerStatus["facts"] {
  const { state, families, networkPolicy } = shown;
  const faulty = [...state.policies.values()].filter(({ knownProblems }) =>
    knownProblems.length > 0
  );
  const rules = families.map((each) => {
    const { family } = each;
    const { isolated: { ingress, egress }, refused, lists, sets, members } = each.inspect();
    if (lists === 0) return { name: "Rules", text: `${family}: no pod of this node is isolated` };
    const text = `${family}: ${countText(ingress, "pod")} isolated for ingress, ${egress} for ` +
      `egress; ${countText(lists, "rule list")}, ${countText(sets, "set")} with ` +
      countText(members, "member") +
      (refused > 0
        ? `; for ${countText(refused, "pod")} there are too many rules: nothing is allowed`
        : "");
    return { name: "Rules", text };
  });
  const unusable = faulty.length > 0 ? `; ${faulty.length} with parts that cannot be used` : "";
  return [
    {
      name: "Policies",
      text: `${state.policies.size}, for ${countText(state.pods.size, "pod")} of the cluster` +
        unusable,
    },
    { name: "Tool", text: toolText(shown) },
    ...rules,
    ...limits(shown),
    ...(networkPolicy.start === "closed" && !shown.hasRanges
      ? [{ name: "Start", text: "open: the Node has no pod ranges that could be closed" }]
      : []),
  ];
}

/** Returns the counts of denied packets, in one line for each family. */
export function deniedFacts(
  denied: ReadonlyMap<IpFamily, DeniedPackets>,
): ControllerStatus["facts"] {
  return [...denied].flatMap(([family, { ingress, egress }]) => {
    const texts = [
      ...(ingress === undefined ? [] : [`${countText(ingress, "packet")} to pods`]),
      ...(egress === undefined ? [] : [`${countText(egress, "packet")} from pods`]),
    ];
    return texts.length === 0 ? [] : [{ name: "Denied", text: `${family}: ${texts.join(", ")}` }];
  });
}

function toolText({ families, tool }: ShownPolicies): string {
  const missing = "kube-relay doctor says what is missing";
  if (families.length === 0) return `none: no NetworkPolicy is enforced; ${missing}`;
  return tool ?? `none: no rules are written; ${missing}`;
}

/** In userspace mode, relayed connections are judged without rules, and only those. */
function limits({ serviceMode, families, tool }: ShownPolicies): ControllerStatus["facts"] {
  if (!MODE_TRAITS[serviceMode].forwardsItself) return [];
  const isJudged = families.length > 0;
  const isEnforced = isJudged && tool !== undefined &&
    families.every(({ loop }) => loop.isComplete);
  return [
    ...(isJudged
      ? [{ name: "Relayed", text: "connections are judged by the address of the client" }]
      : []),
    ...(isEnforced ? [] : [{ name: "Limit", text: "direct pod-to-pod traffic is not covered" }]),
  ];
}
