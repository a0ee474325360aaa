import type { IpFamily } from "../../net/ip_address.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import type { ComparisonScope } from "../../proxy/service_mode.ts";
import type { DataPlaneDifference, DataPlaneRepair } from "../../proxy/data_plane_difference.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { PlannedNode } from "../offline/planned_node.ts";

/** What ServicePorts are called. */
export type ServicePortNames = ReadonlyMap<
  ServicePortKey,
  Pick<ServicePlan, "name" | "protocol">
>;

/** One family of a machine, beside its plan. */
export interface FamilyDifference {
  readonly family: IpFamily;
  /** At least those of the plan that are told of. */
  readonly services: ServicePortNames;
  readonly differences: readonly DataPlaneDifference[];
  /** With `--repair`: what was mended, and how. */
  readonly repair?: DataPlaneRepair;
  /** What the running process has left out until it is tried again: no differences. */
  readonly quarantined: readonly Quarantined[];
}

/** A machine beside the plans of a node. */
export interface NodeDifference {
  readonly mode: BackendMode;
  readonly nodeName: string;
  readonly families: readonly FamilyDifference[];
}

/** What is compared, and whether it is mended. */
export interface CompareOptions {
  /** The ServicePorts that are meant. @default {all} */
  readonly keys?: (plan: ProxyPlan) => ReadonlySet<ServicePortKey>;
  /** Has an attempt to mend a family made; left out = nothing is mended. */
  readonly repair?: RepairRunner;
}

/** Makes an attempt to mend one family, and gives back what came of it. */
export type RepairRunner = (
  family: IpFamily,
  attempt: () => Promise<DataPlaneRepair>,
) => Promise<DataPlaneRepair>;

/** One family's plan, and who looks at the machine. */
interface ComparedFamily extends Pick<ComparisonScope, "serving"> {
  readonly backend: Pick<Backend, "mode" | "compare" | "repair">;
  readonly plan: ProxyPlan;
  /** Of the process that serves. */
  readonly quarantined?: readonly Quarantined[] | undefined;
}

/** Compares this machine with plans, one family after the other. Rejects where it can't be asked. */
export async function compareNode(
  { mode, nodeName, plans, machine, createBackend }: PlannedNode,
  options: CompareOptions = {},
): Promise<NodeDifference> {
  const families: FamilyDifference[] = [];
  for (const [family, plan] of plans) {
    await using backend = createBackend(family);
    families.push(await compareFamily({ ...machine(family), backend, plan }, options));
  }
  return { mode, nodeName, families };
}

/** Compares this machine with one family's plan. Rejects where it can't be asked. */
export async function compareFamily(
  { backend, plan, serving, quarantined: all = [] }: ComparedFamily,
  { keys, repair }: CompareOptions = {},
): Promise<FamilyDifference> {
  const { family, services } = plan;
  const chosen = keys?.(plan);
  const quarantined = all.filter(({ key }) => chosen === undefined || chosen.has(key));
  const scope = { keys: chosen, quarantined: all, serving };
  const common = { family, services, quarantined };
  if (repair) {
    const report = await repair(family, () => backend.repair(plan, scope));
    return { ...common, differences: report.left, repair: report };
  }
  return { ...common, differences: await backend.compare(plan, scope) };
}

/** How many there are in quarantine, of all families. */
export function countQuarantined({ families }: NodeDifference): number {
  return families.reduce((sum, { quarantined }) => sum + quarantined.length, 0);
}

/** How many there are, of all families. */
export function countDifferences({ families }: NodeDifference): number {
  return families.reduce((sum, { differences }) => sum + differences.length, 0);
}
