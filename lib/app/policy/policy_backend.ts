/**
 * A data plane of NetworkPolicy, as far as the controller asks for it.
 *
 * @module
 */
import type { DataPlane, SyncReport } from "../../controller/data_plane.ts";
import type { Logger } from "../../log/logger.ts";
import type { DriftFigures } from "../../metrics/loop_instruments.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { DataPlaneDifference, DataPlaneRepair } from "../../proxy/data_plane_difference.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import type {
  Direction,
  PolicyKey,
  PolicyPlan,
  PolicyPlanChanges,
} from "../../policy/policy_plan.ts";

/** The tools by which policies can be enforced, best first. */
export const POLICY_TOOLS = ["nftables", "iptables"] as const;

/** One of {@linkcode POLICY_TOOLS}. */
export type PolicyTool = typeof POLICY_TOOLS[number];

/** What one sync did. A policy in quarantine allows nothing that was refused. */
export type PolicySyncReport = SyncReport<PolicyKey>;

/** The data plane of one IP family. */
export interface PolicyBackend extends DataPlane<PolicyPlan, PolicyPlanChanges, PolicySyncReport> {
  readonly family: IpFamily;
  /** Returns the plan in the tool's own language, in pieces. Pure. */
  render(plan: PolicyPlan): Iterable<string>;
  /** How what the machine holds now differs from a plan. Changes nothing and needs no `start()`. */
  compare(plan: PolicyPlan): Promise<readonly DataPlaneDifference[]>;
  /** Writes what {@linkcode compare} finds to differ, and compares again. Needs no `start()`. */
  repair(plan: PolicyPlan): Promise<DataPlaneRepair>;
  /** What the last plan that was synced comes to. */
  inspect(): {
    /** Where the rules are. */
    readonly summary: string;
    readonly isolated: Readonly<Record<Direction, number>>;
    readonly lists: number;
    readonly sets: number;
    readonly members: number;
  };
}

/** The edges of a data plane. */
export interface PolicyBackendDependencies {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly logger: Logger;
  readonly random: () => number;
  /** Called when something of ours was found missing or changed. */
  readonly onDrift?: (figures: DriftFigures) => void;
}

/** Its settings. */
export interface PolicyBackendOptions {
  readonly family: IpFamily;
  /** Longest time between two looks for what a flush takes along, milliseconds. */
  readonly syncPeriodMs: number;
}

/** The data planes that this build has, and how they are made. */
export type PolicyBackendTable = Readonly<
  Partial<
    Record<
      PolicyTool,
      (dependencies: PolicyBackendDependencies, options: PolicyBackendOptions) => PolicyBackend
    >
  >
>;
