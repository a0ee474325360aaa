/**
 * The interface of a mode of Services: it applies plans and answers the tools.
 *
 * @module
 */
import { DSR_ANNOTATIONS } from "../api/service_annotations.ts";
import type { DataPlane } from "./data_plane.ts";
import type { FlowWatches } from "./flow_watches.ts";
import type { ServiceMode } from "./service_mode.ts";
import type { ModeAnnotations } from "./service_port.ts";

/** The properties of a mode that the plan and the tools depend on. */
interface ModeTraits {
  /** Whether kube-relay forwards connections itself; in all other modes, rules of the kernel do. */
  readonly forwardsItself: boolean;
  /** Whether Service addresses are local, so that the node also uses them as its source address. */
  readonly bindsAddresses: boolean;
  /** The block of kube-proxy's configuration with the sync periods of the mode. */
  readonly configurationBlock: "iptables" | "ipvs" | "nftables";
  /** `nodePortAddresses` where none are configured; empty means every address. */
  readonly defaultNodePortAddresses: readonly string[];
  /** For how long the first sync waits for the ranges of cluster IPs. */
  readonly serviceRangesWaitMs: number;
  /** Whether a Service can have direct server return. @default {false} */
  readonly hasDsr?: true;
  /** The event that a start in a deprecated mode records. */
  readonly deprecation?: { readonly reason: string; readonly note: string };
}

const KERNEL_MODE: ModeTraits = {
  forwardsItself: false,
  bindsAddresses: false,
  configurationBlock: "iptables",
  defaultNodePortAddresses: [],
  // A first sync without the ranges would write other rules (iptables), take the ranges of the last run
  // away (nftables), or make addresses local one by one instead of by a route (userspace).
  serviceRangesWaitMs: 1000,
};

const TRAITS = {
  iptables: KERNEL_MODE,
  ipvs: {
    ...KERNEL_MODE,
    bindsAddresses: true,
    configurationBlock: "ipvs",
    hasDsr: true,
    serviceRangesWaitMs: 0,
    deprecation: {
      reason: "IPVSDeprecation",
      note: "Kubernetes deprecates mode ipvs since 1.35; nftables takes its place",
    },
  },
  nftables: {
    ...KERNEL_MODE,
    configurationBlock: "nftables",
    // kube-proxy has done so since this mode exists.
    defaultNodePortAddresses: ["primary"],
  },
  userspace: { ...KERNEL_MODE, forwardsItself: true, bindsAddresses: true },
} satisfies Readonly<Record<string, ModeTraits>>;

/** The modes of kube-proxy, and our own. */
export type BackendMode = keyof typeof TRAITS;

/** The traits of each mode that the plan and the tools need. */
export const MODE_TRAITS: Readonly<Record<BackendMode, ModeTraits>> = TRAITS;

/** What a mode ignores of a Service's annotations, for users; `undefined` = nothing. */
export function ignoredDsr(
  mode: BackendMode,
  annotations: ModeAnnotations | undefined,
): string | undefined {
  const name = MODE_TRAITS[mode].hasDsr
    ? undefined
    : DSR_ANNOTATIONS.find((each) => annotations?.[each] !== undefined);
  return name &&
    `mode ${mode} ignores annotation ${name}: only mode ipvs has direct server return`;
}

/** Every mode that is known, in this build or elsewhere, sorted. */
export const BACKEND_MODES = Object.keys(TRAITS) as readonly BackendMode[];

/** The entries of `nodePortAddresses` in effect in a mode, which decides what an unset list means. */
export function nodePortEntries(
  entries: readonly string[],
  mode: BackendMode,
): readonly string[] {
  return entries.length === 0 ? MODE_TRAITS[mode].defaultNodePortAddresses : entries;
}

/** Traffic since the process began, in a mode that sees each connection. */
export interface TrafficCounters {
  /** TCP connections taken from clients. */
  readonly tcpAccepted: number;
  /** TCP connections closed at once: not allowed, denied, over the bound, or no endpoint could be reached. */
  readonly tcpRefused: number;
  /** Of these, those that NetworkPolicies denied. */
  readonly tcpDenied: number;
  /** TCP connections closed at once since a limit of their Service was reached. */
  readonly tcpLimited: number;
  /** TCP connections closed by the idle time-out or the lifetime of their Service. */
  readonly tcpExpired: number;
  /** TCP connections closed, and datagrams dropped, without the PROXY protocol header of a trusted client. */
  readonly proxyHeaderErrors: number;
  /** TCP connections closed since they had no valid ClientHello, or a server name that no Service takes. */
  readonly serverNameErrors: number;
  /** TCP connections closed since they were silent and the bound was reached. */
  readonly tcpSilentClosed: number;
  /** Attempts to connect to an endpoint that failed. */
  readonly dialFailures: number;
  /** The failed attempts that timed out. */
  readonly dialTimeouts: number;
  readonly udpFlows: number;
  /** UDP flows that went over to another endpoint. */
  readonly udpMoved: number;
  /** Datagrams of clients that were not allowed, had no endpoint, or could not be sent. */
  readonly udpDropped: number;
  /** Of these, those that NetworkPolicies denied. */
  readonly udpDenied: number;
  /** Datagrams of clients that were dropped since a limit of the Service was reached. */
  readonly udpLimited: number;
  /** UDP flows that the lifetime of their Service ended. */
  readonly udpExpired: number;
  /** Datagrams to a flow that did not come from its endpoint. */
  readonly udpForeignDropped: number;
}

/** Counts since the process began, in a mode that writes rules. */
export interface RuleCounters {
  /** Refused writes of rules, including those of a cleanup. */
  readonly failedWrites: number;
  /** The failed writes of syncs that wrote only changes. */
  readonly failedPartialWrites: number;
  /** Failed removals of unused objects, if they are separate writes. */
  readonly failedCleanups: number;
  /** Packets that nfacct counted; `undefined` without nfacct. */
  readonly invalidDroppedPackets?: number;
  readonly localhostNodePortPackets?: number;
}

/** Counts of checks since the process began, and current numbers of endpoints that have settings for health. */
export interface HealthFigures {
  readonly checksPassed: number;
  readonly checksFailed: number;
  readonly checksTimedOut: number;
  /** How often an endpoint was ejected. */
  readonly ejections: number;
  /** With endpoints that were not checked yet. */
  readonly healthy: number;
  readonly unhealthy: number;
  readonly ejected: number;
}

/** Counts and watches of a mode that sees each connection. */
export interface ConnectionView {
  /** Since the process began. */
  readonly counters: Readonly<TrafficCounters>;
  readonly health: HealthFigures;
  /** Watches for connections. */
  readonly watches: FlowWatches;
  /**
   * Resolves when counters and flows of watches are those of all threads, and each thread knows the
   * watches. Never rejects.
   */
  refresh(): Promise<void>;
}

/** Counts of a mode that writes rules. */
interface RuleCounting {
  /** May ask the kernel, and rejects if that fails. */
  ruleCounters(): Promise<RuleCounters>;
  /**
   * Brings the counters of Services up to date; rejects if that fails. Asks nothing where nothing is
   * counted.
   */
  refreshTraffic(): Promise<void>;
}

/** One mode in one IP family. */
export interface Backend extends DataPlane, ServiceMode {
  readonly mode: BackendMode;
  /** Only in a mode that forwards connections itself. */
  readonly connections?: ConnectionView;
  /** Only in a mode that writes rules. */
  readonly counting?: RuleCounting;
  /**
   * Whether another program may write objects of the same names at any time: then each sync reads
   * everything, and a repeated call compares everything after a sync. Only in a mode with such names.
   * @default {false}
   */
  distrust?(isDistrusted: boolean): void;
}
