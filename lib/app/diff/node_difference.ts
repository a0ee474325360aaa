/**
 * How the machine differs from the plans of a node: what `diff` found, as a value.
 *
 * @module
 */
import type { IpFamily } from "../../net/ip_address.ts";
import type { BackendMode, Quarantined } from "../../proxy/backend.ts";
import type { DataPlaneDifference, DataPlaneRepair } from "../../proxy/data_plane_difference.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import type { PlannedNode } from "../planned_node.ts";
import type { ReadingsAhead } from "./readings_ahead.ts";

/** One family of a machine, beside its plan. */
export interface FamilyDifference {
  readonly family: IpFamily;
  readonly plan: ProxyPlan;
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
export interface CompareNodeOptions {
  /** The ServicePorts that are meant. @default {all} */
  readonly keys?: (plan: ProxyPlan) => ReadonlySet<ServicePortKey>;
  /** What is read of the machine, begun when the plans were settled; nothing is mended by it. */
  readonly readings?: Pick<ReadingsAhead, "of">;
  /** Has an attempt to mend a family made; left out = nothing is mended. */
  readonly repair?: RepairRunner;
}

/** Makes an attempt to mend one family, and gives back what came of it. */
export type RepairRunner = (
  family: IpFamily,
  attempt: () => Promise<DataPlaneRepair>,
) => Promise<DataPlaneRepair>;

/** Compares this machine with plans, one family after the other. Rejects where it can't be asked. */
export async function compareNode(
  { mode, nodeName, plans, machine, createBackend }: PlannedNode,
  { keys, repair, readings }: CompareNodeOptions = {},
): Promise<NodeDifference> {
  const families: FamilyDifference[] = [];
  for (const [family, plan] of plans) {
    await using backend = createBackend(family);
    const chosen = keys?.(plan);
    const { quarantined: all = [], serving } = machine(family);
    const quarantined = all.filter(({ key }) => chosen === undefined || chosen.has(key));
    const scope = { keys: chosen, quarantined: all, serving };
    const common = { family, plan, quarantined };
    if (repair) {
      if (backend.repair === undefined) throw unable(mode);
      const report = await repair(family, () => backend.repair!(plan, scope));
      families.push({ ...common, differences: report.left, repair: report });
    } else {
      if (backend.compare === undefined) throw unable(mode);
      const reading = readings?.of(family);
      families.push({ ...common, differences: await backend.compare(plan, { ...scope, reading }) });
    }
  }
  return { mode, nodeName, families };
}

/** How many there are in quarantine, of all families. */
export function countQuarantined({ families }: NodeDifference): number {
  return families.reduce((sum, { quarantined }) => sum + quarantined.length, 0);
}

/** How many there are, of all families. */
export function countDifferences({ families }: NodeDifference): number {
  return families.reduce((sum, { differences }) => sum + differences.length, 0);
}

function unable(mode: BackendMode): Error {
  return new Error(
    `Cannot compare this machine with a plan of mode '${mode}': it keeps no objects`,
  );
}
