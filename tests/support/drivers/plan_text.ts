/** Plans of NetworkPolicy as lines of text, for programs that a test starts. */
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import type { PolicyPlan, PolicyPlanChanges } from "../../../lib/policy/policy_plan.ts";

/** A plan and what changed with it. */
export interface PlannedPolicies {
  readonly plan: PolicyPlan;
  readonly changes: PolicyPlanChanges;
}

/** Writes one line. */
export function planText(planned: PlannedPolicies): string {
  return JSON.stringify(planned, (_, value) => {
    if (value instanceof Map) return { entriesOfMap: [...value] };
    return value instanceof Set ? { membersOfSet: [...value] } : value;
  });
}

/** Reads one line. */
export function readPlan(line: string): PlannedPolicies {
  return JSON.parse(line, (_, value) => {
    if (value?.entriesOfMap) return new Map(value.entriesOfMap);
    return value?.membersOfSet ? new Set(value.membersOfSet) : value;
  });
}

/** Reads the name of an IP family. */
export function parseIpFamily(text: string | undefined): IpFamily {
  const found = IP_FAMILIES.find((family) => family === text);
  if (found === undefined) throw new TypeError(`Expected an IP family, found '${text}'`);
  return found;
}
