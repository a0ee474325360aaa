import type { Direction, PolicyPlan } from "./policy_plan.ts";

/** The contents of a data plane. */
export interface PolicyInspection {
  /** The location of the rules, as text for users. */
  readonly summary: string;
  /** Isolated pods by direction. */
  readonly isolated: Readonly<Record<Direction, number>>;
  /** Isolated pods whose policies allow nothing, because they have too many rules. */
  readonly refused: number;
  readonly lists: number;
  readonly sets: number;
  readonly members: number;
}

/**
 * The packets that rules denied, by direction; a direction that cannot be read is absent. A sync that
 * writes all rules may set them to 0.
 */
export type DeniedPackets = Partial<Readonly<Record<Direction, number>>>;

/** Counts the pods, lists and sets of a plan. */
export function inspectPolicyPlan(plan: PolicyPlan, summary: string): PolicyInspection {
  const pods = [...plan.pods.values()];
  const sets = [...plan.peers.values()];
  return {
    summary,
    isolated: {
      ingress: pods.filter(({ ingress }) => ingress !== undefined).length,
      egress: pods.filter(({ egress }) => egress !== undefined).length,
    },
    refused:
      pods.filter(({ ingress, egress }) =>
        [ingress, egress].some((id) => id && plan.lists.get(id)?.excess)
      ).length,
    lists: plan.lists.size,
    sets: sets.length,
    members: sets.reduce((sum, { members }) => sum + members.size, 0),
  };
}
