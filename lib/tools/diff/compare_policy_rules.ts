/** Compares the rules on the machine with those of its NetworkPolicies. */
import type { Quarantined } from "../../engine/data_plane.ts";
import type { Clock } from "../../os/clock.ts";
import type { PolicyPlan } from "../../policy/policy_plan.ts";
import { askedFamily } from "../control/control_server.ts";
import type { PolicyBackend } from "../../app/policy/policy_backend.ts";
import type { PolicyFamily } from "../../app/policy/policy_family.ts";
import type { ChangeLog } from "../changes/change_log.ts";
import type { FamilyDifference } from "./node_difference.ts";
import { compareSettled, repairSettled } from "./settled_comparison.ts";

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

/** Answers `/policy/difference?family=IPv4` with the live plans; `changes`: for a repair of what differs. */
export async function answerPolicyDifference(
  clock: Clock,
  families: readonly PolicyFamily[],
  query: URLSearchParams,
  changes?: Pick<ChangeLog, "repaired">,
): Promise<{ readonly families: readonly FamilyDifference[] }> {
  const wanted = askedFamily(query.get("family"));
  const found: FamilyDifference[] = [];
  for (const each of families) {
    if (wanted !== undefined && each.family !== wanted) continue;
    const { backend, loop } = each;
    const compare = () =>
      comparePolicyRules({ backend, plan: each.plan, quarantined: loop.quarantined });
    const settled = backend && changes
      ? repairSettled({ clock, changes }, loop, compare, () => backend.repair())
      : compareSettled({ clock }, loop, compare);
    found.push(await settled);
  }
  return { families: found };
}
