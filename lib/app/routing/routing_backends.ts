/**
 * The data planes of addresses and routes, as far as the controller asks for them.
 *
 * @module
 */
import type { CleanupReport, DataPlaneEdges, SyncReport } from "../../engine/data_plane.ts";
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import type { BgpPlan, BgpSessionFigures, ReadSecret } from "../../routing/bgp_plan.ts";
import type { RoutingDifference } from "../../routing/compare_layer2.ts";
import type { PodNetworkPlan } from "../../routing/pod_network_plan.ts";
import type { NodeLink } from "../../routing/layer2_member.ts";

/** Carries plans out. The caller has one sync in flight at most. Constructors have no side effect. */
interface RoutingBackend extends AsyncDisposable {
  /** Removes everything that any run added to the machine, and nothing else; or only reports it. */
  cleanup(options?: { readonly dryRun: boolean }): Promise<CleanupReport>;
}

/** Holds the addresses of one IP family on the links of the node. */
export interface Layer2Backend extends RoutingBackend {
  readonly family: IpFamily;
  /**
   * Holds these addresses and no others. `interfaces`: those that may answer, best first; empty = those
   * whose network has the address.
   */
  sync(
    addresses: ReadonlySet<IpAddress>,
    interfaces: readonly string[],
  ): Promise<SyncReport<IpAddress>>;
  /** The next sync compares every address with the machine. */
  recheck(): void;
  inspect(): {
    readonly held: readonly { readonly address: IpAddress; readonly device: string }[];
    /** Why moves are not announced; absent if they are. */
    readonly announcing: string | undefined;
  };
  /**
   * Returns the networks in which this node can answer now. `interfaces`: those that may be used;
   * empty = those whose network has an address.
   */
  links(interfaces: readonly string[]): Promise<readonly NodeLink[]>;
  /**
   * Asks who else answers for some held addresses, each time for others: the link-layer address of
   * another machine, or `undefined`.
   */
  findConflicts(): Promise<ReadonlyMap<IpAddress, string | undefined>>;
}

/** A session of the BGP daemon. */
export interface BgpSessionView extends BgpSessionFigures {
  /** For users. */
  readonly description: string;
}

/** The BGP daemon of the node; the keys of its syncs are its peers and prefixes. */
export interface BgpBackend extends RoutingBackend {
  sync(plan: BgpPlan): Promise<SyncReport<string>>;
  /** The configuration for a plan, without passwords. Pure. */
  render(plan: BgpPlan): Iterable<string>;
  /** How the daemon differs from a plan. Changes nothing. */
  compare(plan: BgpPlan): Promise<readonly RoutingDifference[]>;
  /** The sessions of the peers of a plan. Rejects if the daemon does not run. */
  sessions(plan: BgpPlan): Promise<readonly BgpSessionView[]>;
  /** The prefixes that peers are sent now, by peer. Rejects if the daemon does not run. */
  sentPrefixes(): Promise<ReadonlyMap<string, ReadonlySet<string>>>;
  /** Calls back when a sync is needed, until the signal is aborted. Never rejects. */
  watch(onChange: () => void, signal: AbortSignal): Promise<void>;
}

/** The network of pods on the node; the keys of its syncs are nodes and its other parts. */
export interface PodNetworkBackend extends RoutingBackend {
  sync(plan: PodNetworkPlan): Promise<SyncReport<string>>;
  /** The text for a machine that has nothing of a plan yet. Pure. */
  render(plan: PodNetworkPlan): Iterable<string>;
  /** How the machine differs from a plan. Changes nothing. */
  compare(plan: PodNetworkPlan): Promise<readonly RoutingDifference[]>;
  /**
   * Calls back when a link or an address of the machine changed, until the signal is aborted. Never
   * rejects.
   */
  watch(onChange: () => void, signal: AbortSignal): Promise<void>;
}

/** How the data planes of this build are made. */
export interface RoutingBackends {
  /** `announceIntervalMs`: time between two announcements of an address; 0 = only after a change. */
  layer2(
    dependencies: DataPlaneEdges,
    options: { readonly family: IpFamily; readonly announceIntervalMs: number },
  ): Layer2Backend;
  bgp(
    dependencies: DataPlaneEdges,
    options: {
      readonly configFile: string;
      readonly controlSocket: string;
      /** @default {there are no Secrets} */
      readonly readSecret?: ReadSecret;
    },
  ): BgpBackend;
  /**
   * `cniFiles`: CNI configurations that an earlier run may have written. `isThorough`: a cleanup also
   * looks where this machine would write nothing now.
   */
  podNetwork(
    dependencies: DataPlaneEdges,
    options: { readonly cniFiles: readonly string[]; readonly isThorough?: boolean },
  ): PodNetworkBackend;
}
