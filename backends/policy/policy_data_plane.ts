/**
 * The interface of every NetworkPolicy data plane, whichever tool writes its rules. Owned by its
 * callers; the implementations are in the subfolders.
 *
 * @module
 */
import type { DataPlane, SyncReport } from "../../lib/engine/data_plane.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { DeniedPackets, PolicyInspection } from "../../lib/policy/inspect_policy_plan.ts";
import type {
  Direction,
  PodKey,
  PolicyKey,
  PolicyPlan,
  PolicyPlanChanges,
} from "../../lib/policy/policy_plan.ts";
import type {
  DataPlaneDifference,
  DataPlaneRepair,
} from "../../lib/proxy/data_plane_difference.ts";

/** The settings of a data plane. */
export interface PolicyDataPlaneOptions {
  readonly family: IpFamily;
  /** Longest time between two looks for what a flush takes along, milliseconds. */
  readonly syncPeriodMs: number;
}

/** The result of one sync. A policy in quarantine allows nothing that was refused; its pods stay isolated. */
export type PolicySyncReport = SyncReport<PolicyKey>;

/** An object of the data plane that differs from the plan. */
export type PolicyDifference = Omit<DataPlaneDifference, "key">;

/** The result of a repair. */
export type PolicyRepair = Omit<DataPlaneRepair, "found" | "left"> & {
  readonly found: readonly PolicyDifference[];
  readonly left: readonly PolicyDifference[];
};

/** One way to enforce NetworkPolicy, in one IP family. */
export interface PolicyDataPlane
  extends DataPlane<PolicyPlan, PolicyPlanChanges, PolicySyncReport> {
  readonly family: IpFamily;
  /** Distinguishes data planes in reports. */
  readonly tool: "nftables" | "iptables";
  /** The plan in the tool's own language, in pieces. The same plan gives the same bytes. Pure. */
  render(plan: PolicyPlan): Iterable<string>;
  /**
   * Returns the differences between the machine and a plan. Changes nothing and needs no `start()`.
   */
  compare(plan: PolicyPlan): Promise<readonly PolicyDifference[]>;
  /** Writes what {@linkcode compare} finds to differ, and compares again. Needs no `start()`. */
  repair(plan: PolicyPlan): Promise<PolicyRepair>;
  /** Summarizes the last synced plan. */
  inspect(): PolicyInspection;
  /** Reads the packets that were denied in each direction. */
  deniedPackets(): Promise<DeniedPackets>;
}

/** The parts of a plan on which the spelling of its pods, lists and base chains depends. */
export type LayoutSettings = Pick<
  PolicyPlan,
  "closedRanges" | "deny" | "family" | "sharedLinks"
>;

/** In the order in which a packet meets them. */
export const DIRECTIONS = ["egress", "ingress"] as const;

/** The log messages about drift, the same in every data plane. */
export const POLICY_DRIFT_TEXTS = {
  lost: "Another program removed rules of NetworkPolicy; repairing",
  changed: "Another program removed or changed rules of NetworkPolicy; repairing",
  failed: "Cannot check the rules of NetworkPolicy; trying again",
} as const;

/** The beginning of what is logged of a denied packet, at most 127 bytes; `to` or `from` the pod. */
export function denyLogPrefix(pod: PodKey, direction: Direction): string {
  const name = `${direction === "ingress" ? "to" : "from"} ${pod}`;
  // Names of pods are checked by the API server, and manifests are not: nothing but these characters
  // gets between the quotes.
  const safe = name.replaceAll(/[^\w./ -]/g, "?");
  return `netpol ${
    safe.length > MAX_LOGGED_NAME ? `${safe.slice(0, MAX_LOGGED_NAME - 1)}~` : safe
  }: `;
}

/** With the words around it, within the 127 bytes of the kernel. */
const MAX_LOGGED_NAME = 110;
