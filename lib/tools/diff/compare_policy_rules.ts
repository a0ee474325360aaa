/** Compares the rules on the machine with those of its NetworkPolicies. */
import type { Quarantined } from "../../engine/data_plane.ts";
import type { Clock } from "../../os/clock.ts";
import type { PolicyPlan } from "../../policy/policy_plan.ts";
import { askedFamily } from "../control/control_server.ts";
import type { PolicyBackend } from "../../app/policy/policy_backend.ts";
import type { PolicyFamily } from "../../app/policy/policy_family.ts";
import type { FamilyDifference, RepairRunner } from "./node_difference.ts";
import { compareSettled } from "./settled_comparison.ts";

const CONTROLLER = "network-policy";

/** Compares one family, or repairs it. Rejects if the machine cannot be read. */
export async function comparePolicyRules(
  { backend, plan, quarantined = [] }: {
    /** `undefined` = no rules are written. */
    readonly backend: Pick<PolicyBackend, "compare" | "repair"> | undefined;
    readonly plan: PolicyPlan;
    readonly quarantined?: readonly Quarantined<string>[];
  },
  { repair }: { readonly repair?: RepairRunner | undefined } = {},
): Promise<FamilyDifference> {
  const loop = { controller: CONTROLLER, family: plan.family } as const;
  const common = { ...loop, quarantined };
  if (repair) {
    const report = await repair(
      loop,
      () => backend?.repair(plan) ?? Promise.resolve({ found: [], left: [], operations: {} }),
    );
    return { ...common, differences: report.left, repair: report };
  }
  return { ...common, differences: await backend?.compare(plan) ?? [] };
}

/** Answers `/policy/difference?family=IPv4` with the live plans. */
export async function answerPolicyDifference(
  edges: { readonly clock: Pick<Clock, "sleep"> },
  families: readonly Pick<PolicyFamily, "backend" | "family" | "loop" | "plan">[],
  query: URLSearchParams,
): Promise<{ readonly families: readonly FamilyDifference[] }> {
  const wanted = askedFamily(query.get("family"));
  const found: FamilyDifference[] = [];
  for (const each of families) {
    if (wanted !== undefined && each.family !== wanted) continue;
    const { backend, loop } = each;
    const compare = () =>
      comparePolicyRules({ backend, plan: each.plan, quarantined: loop.quarantined });
    found.push(await compareSettled(edges, loop, compare));
  }
  return { families: found };
}
