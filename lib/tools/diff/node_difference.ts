import type { PolicyBackend } from "../../app/policy/policy_backend.ts";
import type { PolicyPlan } from "../../policy/policy_plan.ts";
import type * as controller from "../../engine/data_plane.ts";
import type { EntryLoop } from "../changes/change_entry.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { DataPlaneDifference, Quarantined } from "../../proxy/data_plane.ts";
import type { ComparisonScope } from "../../proxy/service_mode.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { RoutingComparison } from "./compare_routing.ts";
import type { PlannedNode } from "../offline/plan_objects.ts";

/** The differences of one family, of Services or of another controller. */
export interface FamilyDifference extends EntryLoop {
  readonly differences: readonly DataPlaneDifference[];
  /** With `--repair`. */
  readonly repair?: {
    /** The differences before. */
    readonly found: readonly DataPlaneDifference[];
    /** Their number by name. */
    readonly operations: Readonly<Record<string, number>>;
    /** What the kernel refused, so that it is in quarantine now. */
    readonly refused: readonly string[];
    /** Why nothing, or not everything, could be written. */
    readonly error?: string;
  };
  /** Failed syncs since the last successful one, if any: a repair writes nothing until one succeeds. */
  readonly failures?: number;
  readonly lastError?: string;
  /** Whether syncs went on, so that some differences may be unfinished changes. */
  readonly isUnsettled?: true;
  /** Left out by the running process until the next try; these are no differences. */
  readonly quarantined: readonly controller.Quarantined<string>[];
}

/** The differences between a machine and the plans of a node. */
export interface NodeDifference {
  readonly mode: BackendMode;
  readonly nodeName: string;
  readonly families: readonly FamilyDifference[];
  /** Addresses and routes; absent if they are not compared. */
  readonly routing?: RoutingComparison;
}

/** Chooses the compared ServicePorts; `undefined` = all. */
export type ChosenKeys = ((plan: ProxyPlan) => ReadonlySet<ServicePortKey>) | undefined;

interface ComparedFamily extends Pick<ComparisonScope, "serving"> {
  readonly backend: Pick<Backend, "compare">;
  readonly plan: ProxyPlan;
  readonly quarantined?: readonly Quarantined[] | undefined;
}

/** Compares this machine with plans, one family after the other. */
export async function compareNode(
  { mode, nodeName, plans, machine, createBackend }: PlannedNode,
  keys: ChosenKeys,
): Promise<NodeDifference> {
  const families: FamilyDifference[] = [];
  for (const [family, plan] of plans) {
    await using backend = createBackend(family);
    families.push(await compareFamily({ ...machine(family), backend, plan }, keys));
  }
  return { mode, nodeName, families };
}

/** Compares this machine with one family's plan. Rejects if the machine cannot be read. */
export async function compareFamily(
  { backend, plan, serving, quarantined: all = [] }: ComparedFamily,
  keys: ChosenKeys,
): Promise<FamilyDifference> {
  const chosen = keys?.(plan);
  const quarantined = all.filter(({ key }) => chosen === undefined || chosen.has(key));
  const scope = { keys: chosen, quarantined: all, serving };
  return { family: plan.family, quarantined, differences: await backend.compare(plan, scope) };
}

/**
 * Compares the rules on the machine with those of NetworkPolicies of one family; none are written without a
 * backend. Rejects if the machine cannot be read.
 */
export async function comparePolicyRules(
  backend: Pick<PolicyBackend, "compare"> | undefined,
  plan: PolicyPlan,
  quarantined: readonly controller.Quarantined<string>[] = [],
): Promise<FamilyDifference> {
  const differences = await backend?.compare(plan) ?? [];
  return { controller: "network-policy", family: plan.family, quarantined, differences };
}

/** The number of ServicePorts and addresses in quarantine. */
export function countQuarantined({ families }: NodeDifference): number {
  return families.reduce((sum, { quarantined }) => sum + quarantined.length, 0);
}

/** The differences that a repair did not correct, because it could not, or because the kernel refused. */
export function unrepaired(
  { differences, repair }: FamilyDifference,
): readonly DataPlaneDifference[] {
  const refused = repair?.found.filter(({ key = "" }) => repair.refused.includes(key)) ?? [];
  return [...differences, ...refused];
}

/** Whether a repair failed. A difference with another remedy is none of its own. */
export function isRepairFailed({ families }: NodeDifference): boolean {
  return families.some(({ differences, isUnsettled, repair }) =>
    repair !== undefined && (repair.error !== undefined || repair.refused.length > 0 ||
      // While syncs go on, a difference may be an unfinished change.
      (!isUnsettled && differences.some(({ cure }) => cure === undefined)))
  );
}

/** The number of differences. */
export function countDifferences({ families, routing }: NodeDifference): number {
  const ofRouting = routing?.differences.length ?? 0;
  return families.reduce((sum, { differences }) => sum + differences.length, ofRouting);
}
