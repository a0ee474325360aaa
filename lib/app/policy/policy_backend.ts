/**
 * A data plane of NetworkPolicy, as far as the controller asks for it.
 *
 * @module
 */
import type { DataPlane, DataPlaneEdges, SyncReport } from "../../engine/data_plane.ts";
import type { DriftFigures } from "../../metrics/proxy_metrics.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { DataPlaneDifference } from "../../proxy/data_plane.ts";
import type {
  DeniedPackets,
  PolicyKey,
  PolicyPlan,
  PolicyPlanChanges,
} from "../../policy/policy_plan.ts";

/** The tools by which policies can be enforced, best first. */
export const POLICY_TOOLS = ["nftables", "iptables"] as const;

/** One of {@linkcode POLICY_TOOLS}. */
export type PolicyTool = typeof POLICY_TOOLS[number];

/** The data plane of one IP family. The refused rules of a policy in quarantine allow nothing. */
export interface PolicyBackend
  extends DataPlane<PolicyPlan, PolicyPlanChanges, SyncReport<PolicyKey>> {
  readonly family: IpFamily;
  /** The location of the rules, as text for users. */
  readonly summary: string;
  /** Returns the plan in the tool's own language, in pieces. Pure. */
  render(plan: PolicyPlan): Iterable<string>;
  /** Returns the differences between the machine and a plan. Changes nothing and needs no `start()`. */
  compare(plan: PolicyPlan): Promise<readonly DataPlaneDifference[]>;
  /**
   * Reads the machine and writes what differs from the plan of the last sync. Returns the operations,
   * as a sync does. Does nothing while a sync is pending.
   */
  repair(): Promise<Readonly<Record<string, number>>>;
  /** Reads the packets that were denied in each direction. */
  deniedPackets(): Promise<DeniedPackets>;
}

/** The edges of a data plane. */
export interface PolicyBackendDependencies extends DataPlaneEdges {
  /** Called when something of ours was found missing or changed. */
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** The settings of a policy backend. */
export interface PolicyBackendOptions {
  readonly family: IpFamily;
  /** Longest time between two looks for what a flush takes along, milliseconds. */
  readonly syncPeriodMs: number;
}

/** The data planes that this build has, and how they are made. */
export type PolicyBackendTable = Readonly<
  Record<
    PolicyTool,
    (dependencies: PolicyBackendDependencies, options: PolicyBackendOptions) => PolicyBackend
  >
>;
