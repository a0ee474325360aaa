/**
 * What the main thread and a worker post to each other, for one IP family.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import type { OpenFiles, SharedOpenFiles } from "../../../lib/os/open_files.ts";
import type { MemoryRegion } from "../../../lib/os/shared_memory.ts";
import type { JudgeUpdate } from "../../../lib/policy/connection_judge.ts";
import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { FlowQuery, WatchedFlow } from "../../../lib/proxy/flow_watches.ts";
import type { AffinityEntry } from "../../../lib/proxy/packet_explanation.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { Command, RefusedSocket } from "../forwarders.ts";
import type { ConnectionOutcome, ForwardingCounters, ForwardingOptions } from "../forwarding.ts";
import type { SocketKey } from "../listeners.ts";
import type { CountMemory } from "../shared_counts.ts";

/** The settings of forwarding in a worker. */
export interface WorkerSettings {
  readonly family: IpFamily;
  readonly index: number;
  readonly options: Omit<ForwardingOptions, "judge">;
  /** Each process has its own `counts`, and limits of its own. */
  readonly openFiles: SharedOpenFiles;
  /** As `OwnSockets` needs it. */
  readonly sockets: MemoryRegion;
  readonly counts: CountMemory<MemoryRegion>;
  /** The time that all workers have in common: what they share has times. */
  readonly now: number;
  readonly countsTraffic: boolean;
  /** Whether NetworkPolicies are asked; the first complete update brings them. */
  readonly isJudged: boolean;
}

/** What a worker has counted for one ServicePort. */
export interface ForwarderFigures {
  /** Open connections or flows. */
  readonly connections: number;
  /** `undefined` = nothing yet, or Services are not counted one by one. */
  readonly traffic: Readonly<ServiceTraffic> | undefined;
}

/** What a worker has counted since it began. */
export interface WorkerReport {
  readonly counters: Readonly<ForwardingCounters>;
  /** Of the ServicePorts of which something has changed since the last report. */
  readonly services: ReadonlyMap<ServicePortKey, ForwarderFigures>;
  /** Sockets that were not opened for lack of files, by use. */
  readonly refused: ReturnType<OpenFiles["takeRefused"]>;
}

/** What a worker has from a main process before this one. */
export interface HeldState {
  readonly sockets: readonly SocketKey[];
  /** Where the clients of ServicePorts with affinity are. */
  readonly affinity: readonly (readonly [key: ServicePortKey, region: MemoryRegion])[];
}

/** What the main thread asks, and the answers of a worker. */
export type Question =
  | { readonly kind: "apply"; readonly commands: readonly Command[] }
  /** `listeners`: listening sockets of all Services. */
  | { readonly kind: "report"; readonly listeners: number }
  | { readonly kind: "held" }
  | { readonly kind: "remembered"; readonly key: ServicePortKey; readonly client: string }
  | { readonly kind: "follow"; readonly update: JudgeUpdate }
  | { readonly kind: "recheck"; readonly addresses: readonly IpAddress[] }
  | { readonly kind: "drain"; readonly timeoutMs: number }
  | { readonly kind: "close" };
export interface Answers {
  readonly apply: readonly RefusedSocket[];
  readonly report: WorkerReport;
  readonly held: HeldState;
  readonly remembered: AffinityEntry | undefined;
  readonly follow: void;
  readonly recheck: number;
  readonly drain: void;
  readonly close: void;
}

/** What the main thread tells. */
export type MainNotice =
  | { readonly kind: "watch"; readonly id: string; readonly query: FlowQuery }
  /** An attempt of another worker failed, so the next success is worth a report. */
  | { readonly kind: "failing"; readonly key: ServicePortKey; readonly endpoint: EndpointKey };

/** What a worker tells. It asks nothing: no connection waits for another thread. */
export type WorkerNotice =
  | { readonly kind: "log"; readonly message: string; readonly fields: Record<string, unknown> }
  | { readonly kind: "flow"; readonly flow: WatchedFlow }
  | { readonly kind: "outcome"; readonly outcome: ConnectionOutcome };

/** What the main thread posts, the start first. Answers come in any order. */
export type MainMessage =
  | readonly ["start", settings: WorkerSettings]
  | readonly ["ask", id: number, question: Question]
  | readonly ["tell", notice: MainNotice];

/** What a worker posts: an answer, the reason why there is none, or a notice. */
export type WorkerMessage =
  | readonly ["answer", id: number, answer: unknown]
  | readonly ["failure", id: number, reason: string]
  | readonly ["tell", notice: WorkerNotice];
