/**
 * A data plane of NetworkPolicy, as far as the controller asks for it.
 *
 * @module
 */
import type {
  CleanupReport,
  DataPlane,
  DataPlaneEdges,
  SyncReport,
} from "../../engine/data_plane.ts";
import type { DriftFigures } from "../../metrics/proxy_metrics.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { DataPlaneDifference, DataPlaneRepair } from "../../proxy/data_plane_difference.ts";
import {
  type DeniedPackets,
  inspectPolicyPlan,
  type PolicyInspection,
} from "../../policy/inspect_policy_plan.ts";
import type { PolicyKey, PolicyPlan, PolicyPlanChanges } from "../../policy/policy_plan.ts";

/** The tools by which policies can be enforced, best first. */
export const POLICY_TOOLS = ["nftables", "iptables"] as const;

/** One of {@linkcode POLICY_TOOLS}. */
export type PolicyTool = typeof POLICY_TOOLS[number];

/** The result of one sync. The refused rules of a policy in quarantine allow nothing. */
export type PolicySyncReport = SyncReport<PolicyKey>;

/** The data plane of one IP family. */
export interface PolicyBackend extends DataPlane<PolicyPlan, PolicyPlanChanges, PolicySyncReport> {
  readonly family: IpFamily;
  /** Returns the plan in the tool's own language, in pieces. Pure. */
  render(plan: PolicyPlan): Iterable<string>;
  /** Returns the differences between the machine and a plan. Changes nothing and needs no `start()`. */
  compare(plan: PolicyPlan): Promise<readonly DataPlaneDifference[]>;
  /** Writes what {@linkcode compare} finds to differ, and compares again. Needs no `start()`. */
  repair(plan: PolicyPlan): Promise<DataPlaneRepair>;
  /** Returns figures of the last synced plan. */
  inspect(): PolicyInspection;
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
  Partial<
    Record<
      PolicyTool,
      (dependencies: PolicyBackendDependencies, options: PolicyBackendOptions) => PolicyBackend
    >
  >
>;

/** The data plane of a host without a tool for rules, where kube-relay judges what it relays. */
export class NoRulesBackend implements PolicyBackend {
  #plan: PolicyPlan | undefined;

  constructor(readonly family: IpFamily) {}

  async start(): Promise<void> {}

  sync(plan: PolicyPlan, { full }: PolicyPlanChanges): Promise<PolicySyncReport> {
    this.#plan = plan;
    return Promise.resolve({ full, operations: {}, quarantined: [] });
  }

  render(): Iterable<string> {
    return [];
  }

  inspect(): PolicyInspection {
    return inspectPolicyPlan(this.#plan, "no rules; relayed connections are judged");
  }

  compare(): Promise<readonly DataPlaneDifference[]> {
    return Promise.resolve([]);
  }

  repair(): Promise<DataPlaneRepair> {
    return Promise.resolve({ found: [], left: [], operations: {} });
  }

  deniedPackets(): Promise<DeniedPackets> {
    return Promise.resolve({});
  }

  recheck(): void {}

  cleanup(): Promise<CleanupReport> {
    return Promise.resolve({ removed: [], failed: [] });
  }

  previewCleanup(): Promise<CleanupReport> {
    return this.cleanup();
  }

  async drain(): Promise<void> {}

  async [Symbol.asyncDispose](): Promise<void> {}
}
