/** Compares the rules on the machine with those of its NetworkPolicies. */
import type { Quarantined } from "../../engine/data_plane.ts";
import type { PolicyPlan } from "../../policy/policy_plan.ts";
import type { PolicyBackend } from "../../app/policy/policy_backend.ts";
import type { FamilyDifference } from "./node_difference.ts";

/** Compares one family. Rejects if the machine cannot be read. */
export async function comparePolicyRules(
  { backend, plan, quarantined = [] }: {
    /** `undefined` = no rules are written. */
    readonly backend: Pick<PolicyBackend, "compare"> | undefined;
    readonly plan: PolicyPlan;
    readonly quarantined?: readonly Quarantined<string>[];
  },
): Promise<FamilyDifference> {
  const { family } = plan;
  const differences = await backend?.compare(plan) ?? [];
  return { controller: "network-policy", family, quarantined, differences };
}
