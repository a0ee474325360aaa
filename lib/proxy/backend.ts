/**
 * What the sync loop needs of a backend. Owned by its caller; implementations are in `backends/`.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { DataPlaneDifference, DataPlaneRepair } from "./data_plane_difference.ts";
import type { FlowWatches } from "./flow_watches.ts";
import type { HostSettingRequest } from "./host_setting.ts";
import type { MachineFacts } from "./machine_facts.ts";
import type { NodePortAddresses } from "./node_port_addresses.ts";
import type { Packet } from "./packet.ts";
import type {
  AffinityEntry,
  ModeExplanation,
  PacketCarrier,
  PacketExplanation,
} from "./packet_explanation.ts";
import type { PlanChanges, ProxyPlan } from "./proxy_plan.ts";
import type { ServicePlan } from "./service_plan.ts";
import type { ServicePortKey } from "./service_port_name.ts";
import type { TrafficFigures } from "./service_traffic.ts";

/** The modes of kube-proxy, and our own. */
export type BackendMode = "iptables" | "ipvs" | "nftables" | "userspace";

/** One thing that a mode needs of the machine: there, or missing with its cure. */
export interface ProbeResult {
  /** What was tried, e.g. `bind 127.96.0.1`. */
  readonly feature: string;
  readonly available: boolean;
  /** Whether the mode works at all without it. */
  readonly required: boolean;
  /** What was found, or why it is missing. */
  readonly detail: string;
  /** What an admin would do about it. */
  readonly cure?: string;
  /** What does not work without it, as a sentence without a full stop. */
  readonly lost?: string;
  /** The IP family that needs it; absent where both do. A mode works when one family has all of its own. */
  readonly family?: IpFamily;
}

/** A ServicePort, or one address of it, that could not be brought into effect. The others are. */
export interface Quarantined {
  readonly key: ServicePortKey;
  /** The address concerned, e.g. `10.96.0.10:53/UDP`, where it is not the whole ServicePort. */
  readonly address?: string;
  /** What failed and why, with the cure where one is known. */
  readonly reason: string;
  /**
   * What the kernel refused, and from when on a sync tries it again, RFC 3339. Until then nothing of the
   * ServicePort is wanted in the kernel. Absent where it is no refusal: each sync looks at those.
   */
  readonly retryAt?: string;
}

/** What of a plan is compared with the machine. */
export interface ComparisonScope {
  /** These ServicePorts, and what all share. @default {all} */
  readonly keys?: ReadonlySet<ServicePortKey> | undefined;
  /** Of the process that serves: what the kernel refused is not to be there. @default {nothing} */
  readonly quarantined?: readonly Quarantined[] | undefined;
  /**
   * What the process that serves has open, for a mode that serves by itself. @default {nobody was
   * asked, and it is not compared}
   */
  readonly serving?: readonly Pick<ServiceInspection, "key" | "addresses">[] | undefined;
}

/** What one sync did. Returned, not pushed; counts, never estimates. */
export interface SyncReport {
  /** Whether everything was compared, or only what changed. */
  readonly full: boolean;
  /** ServicePorts looked at. */
  readonly services: number;
  /** Operations on the data plane, by name (`listen`, `close`, `rules`, `bytes` …); zero ones left out. */
  readonly operations: Readonly<Record<string, number>>;
  /** Everything that is in quarantine now, not only since this sync. */
  readonly quarantined: readonly Quarantined[];
  /** By a mode that has iptables' tables: rules of ours in each, and those written by this sync. */
  readonly rules?: Readonly<
    Partial<Record<"nat" | "filter", { readonly total: number; readonly last: number }>>
  >;
}

/** What goes through an address in a second, as the kernel estimates it over the last few. */
export interface ServerRates {
  /** New connections. */
  readonly connections: number;
  readonly packetsIn: number;
  readonly packetsOut: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
}

/** What the kernel knows of the connections to an address. */
export interface ServerLoad {
  /** Established connections. */
  readonly active: number;
  /** All others that are remembered: half open, or closed a moment ago. */
  readonly inactive: number;
  /** Absent where nothing is remembered, and where the kernel does not tell. */
  readonly rates?: ServerRates;
}

/** An address that a ServicePort is served on. */
export interface ServedAddress {
  readonly role: "ClusterIP" | "ExternalIP" | "LoadBalancer" | "NodePort" | "StandIn";
  readonly address: IpAddress;
  readonly port: Port;
  readonly protocol: Protocol;
  readonly state: "serving" | "refusing" | "quarantined";
  /** By a mode in which the kernel counts for each address. */
  readonly load?: ServerLoad;
}

/** What the data plane really holds for one ServicePort. */
export interface ServiceInspection {
  readonly key: ServicePortKey;
  readonly addresses: readonly ServedAddress[];
  /** Connections or flows open now, where the backend knows. */
  readonly connections?: number;
  /** What went through it, where that is counted and it has counters of its own. */
  readonly traffic?: TrafficFigures;
}

/** What the data plane really holds. */
export interface BackendInspection {
  /** How Service addresses reach this data plane, for a person to read. */
  readonly summary: string;
  readonly services: readonly ServiceInspection[];
  readonly quarantined: readonly Quarantined[];
}

/** What was forwarded since the process began, by a mode that sees each connection. */
export interface TrafficCounters {
  /** TCP connections taken from clients. */
  readonly tcpAccepted: number;
  /** TCP connections closed at once: not allowed, over the bound, or no endpoint could be reached. */
  readonly tcpRefused: number;
  /** TCP connections closed since they were silent and the bound was reached. */
  readonly tcpSilentClosed: number;
  /** Attempts to connect to an endpoint that failed. */
  readonly dialFailures: number;
  /** Of these, those that took too long. */
  readonly dialTimeouts: number;
  readonly udpFlows: number;
  /** UDP flows that went over to another endpoint. */
  readonly udpMoved: number;
  /** Datagrams of clients that were not allowed, had no endpoint, or could not be sent. */
  readonly udpDropped: number;
  /** Datagrams to a flow that did not come from its endpoint. */
  readonly udpForeignDropped: number;
}

/** What a mode that writes rules counts since the process began. */
export interface RuleCounters {
  /** Writes of rules that were refused, those of a cleanup included. */
  readonly failedWrites: number;
  /** Of these, those of syncs that wrote only what had changed. */
  readonly failedPartialWrites: number;
  /** Removals of what is out of use that were refused, where they are writes of their own. */
  readonly failedCleanups: number;
  /** Packets that nfacct counted; `undefined` without nfacct. */
  readonly invalidDroppedPackets?: number;
  readonly localhostNodePortPackets?: number;
}

/** What a cleanup did. */
export interface CleanupReport {
  /** One line for each thing removed, e.g. `address 10.96.0.1/32 on lo`. */
  readonly removed: readonly string[];
  /** What could not be removed, with the reason. */
  readonly failed: readonly string[];
  /** What was left on purpose, with the reason, e.g. a chain that other software refers to. */
  readonly kept?: readonly string[];
  /** Of a dry run: what it would run, each a command of a shell with its input and a line feed. */
  readonly commands?: readonly string[];
}

/**
 * The data plane of one mode and one IP family. `create*()` has no side effect; nothing is opened or
 * run before `start()`.
 */
export interface Backend extends AsyncDisposable {
  readonly mode: BackendMode;
  readonly family: IpFamily;
  /** Whether the kernel's connection tracking decides for packets of known flows, past the rules. */
  readonly usesConntrack: boolean;
  /**
   * Whether the first plans may be such that {@linkcode PlanChanges.isPartial} says so, as known after
   * `start()`. A mode whose first sync removes what an earlier run left does not take them where there
   * is something: it goes on serving as it is. @default {false}
   */
  readonly takesPartialPlans?: boolean;
  /** For the metrics, where the mode sees connections at all. */
  readonly counters?: Readonly<TrafficCounters>;
  /** Who watches for connections, where the mode sees them. */
  readonly flowWatches?: FlowWatches;
  /** For the metrics, by a mode that writes rules. May ask the kernel, and rejects if that fails. */
  ruleCounters?(): Promise<RuleCounters>;
  /**
   * Brings the counters of Services up to date, by a mode that has to ask for them; rejects if that
   * fails. Nothing is asked where nobody counts.
   */
  refreshTraffic?(): Promise<void>;
  /**
   * Settings of the machine that this mode needs, for node ports as they are configured. Asked before
   * `start()`, and again where interfaces are new.
   */
  hostSettings?(nodePorts: NodePortAddresses): readonly HostSettingRequest[];
  /** Tries each thing that the mode needs and leaves nothing behind. */
  probe(): Promise<readonly ProbeResult[]>;
  /** Reads what the machine holds from an earlier run and adopts it. Nothing is torn down. */
  start(): Promise<void>;
  /**
   * Brings the data plane from what it holds to `plan`. `changes` are relative to the last sync that
   * did not throw. What cannot be had is quarantined in the report; a throw means that the outcome
   * is unknown or nothing was applied, and that the same changes come again.
   * The caller has one sync in flight at most.
   */
  sync(plan: ProxyPlan, changes: PlanChanges): Promise<SyncReport>;
  /**
   * The plan in the backend's own language, in pieces of some KB: all of it, or what is for these
   * ServicePorts with what leads there. Pure.
   */
  render(plan: ProxyPlan, keys?: ReadonlySet<ServicePortKey>): Iterable<string>;
  /**
   * As {@linkcode render} for each of these ServicePorts alone, in their order. Absent in modes where
   * that takes no longer one by one.
   */
  renderEach?(
    plan: ProxyPlan,
    keys: ReadonlySet<ServicePortKey>,
  ): Iterable<readonly [ServicePortKey, string]>;
  /**
   * What {@linkcode render} goes by beside the plan and the settings; `undefined` before `start()`.
   * Absent in modes whose text is the same on every machine.
   */
  facts?(): MachineFacts | undefined;
  /** What the data plane holds, of some or all ServicePorts. */
  inspect(keys?: readonly ServicePortKey[]): Promise<BackendInspection>;
  /**
   * How what the machine holds now differs from a plan. Asks the machine and changes nothing; what
   * other software has there is no difference, nor is what is in quarantine.
   * Needs no `start()`. Absent in modes that can't tell from outside of the process that serves.
   */
  compare?(plan: ProxyPlan, scope?: ComparisonScope): Promise<readonly DataPlaneDifference[]>;
  /**
   * Writes what {@linkcode compare} finds to differ and nothing else, and compares again. For a process
   * that serves nothing: it needs no `start()`, and what the serving process knows stays true.
   * Rejects where something can't be written.
   */
  repair?(plan: ProxyPlan, scope?: ComparisonScope): Promise<DataPlaneRepair>;
  /**
   * What carries a packet that a plan has explained, and where this mode treats it in another way than
   * the plan says. Asks nothing of the machine.
   */
  explain?(plan: ProxyPlan, explanation: PacketExplanation): ModeExplanation;
  /**
   * What of these the machine does not have. Asks for them alone, so that it takes the same time
   * whatever the number of Services. Rejects with what is in the way.
   */
  findMissing?(carriers: readonly PacketCarrier[]): Promise<readonly DataPlaneDifference[]>;
  /**
   * What is remembered of a client of a ServicePort with session affinity; `undefined` = nothing. Asks
   * the machine. Rejects with what is in the way. Absent in modes that can't tell.
   */
  findAffinity?(plan: ServicePlan, client: Packet): Promise<AffinityEntry | undefined>;
  /**
   * Somebody else has written where this mode writes: what is there is compared soon. Absent in modes
   * in which nobody can.
   */
  recheck?(): void;
  /** Whether this mode put the address on an interface: it is then none of the node's own. */
  ownsAddress(address: IpAddress): boolean;
  /** Takes away everything that this mode ever added to the machine, and nothing else. */
  cleanup(): Promise<CleanupReport>;
  /** What {@linkcode cleanup} would take away. Changes nothing. Absent in modes that can't tell. */
  previewCleanup?(): Promise<CleanupReport>;
  /** Takes no new connections and waits for open ones, at most so long. Kernel state stays. */
  drain(timeoutMs: number): Promise<void>;
}
