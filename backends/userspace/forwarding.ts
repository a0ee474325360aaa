import type { LogFields, Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { Network, SocketAddress } from "../../lib/os/network.ts";
import { OpenFiles } from "../../lib/os/open_files.ts";
import type { ConnectionJudge } from "../../lib/policy/connection_judge.ts";
import { FlowWatches, type WatchedFlow } from "../../lib/proxy/flow_watches.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { FamilyTraffic } from "../../lib/proxy/service_traffic.ts";
import { ClientOrigin } from "./client_origin.ts";
import { EndpointLoops } from "./endpoint_loops.ts";
import { DenoEngine, type Engine } from "./engine.ts";
import { OwnSockets } from "./own_sockets.ts";
import { PolicyGate } from "./policy_gate.ts";
import { createCountMemory, SharedCounts } from "./shared_counts.ts";
import { SocketRoom } from "./socket_room.ts";
import { TcpDialer } from "./tcp/tcp_dialer.ts";
import type { TrafficCounters } from "../../lib/proxy/backend.ts";

/** The edges that forwarding works with. */
export interface ForwardingDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly network: Network;
  /** From 0 (included) to 1; where each rotation of endpoints begins. @default {() => 0} */
  readonly random?: () => number;
  /** Limits of open files. @default {the usual limits, for this family alone} */
  readonly openFiles?: OpenFiles;
  /** Counters of each Service; without them nothing is counted by Service. */
  readonly traffic?: FamilyTraffic;
  /** Sockets towards endpoints. @default {those of this thread} */
  readonly own?: OwnSockets;
  /** Counts connections. @default {those of this thread} */
  readonly counts?: SharedCounts;
  /** Whether other threads listen at the same addresses. @default {false} */
  readonly isShared?: boolean;
  /** Sockets and timers. @default {those of Deno} */
  readonly engine?: Engine;
}

/** Bounds and time-outs of forwarding. */
export interface ForwardingOptions {
  /** Time for each attempt to connect to an endpoint, in turn. @default {[250, 500, 1000, 2000]} */
  readonly dialTimeoutsMs?: readonly number[];
  /** TCP connections of one ServicePort. @default {16384} */
  readonly maxConnectionsPerService?: number;
  /** A TCP connection may be closed for a new one when nothing came for so long. @default {300000} */
  readonly silentMs?: number;
  /** A UDP flow ends when nothing came, from either side, for so long. */
  readonly udpTimeoutMs: number;
  /** UDP flows of one ServicePort; the longest unused go first. @default {16384} */
  readonly maxFlowsPerService?: number;
  /** Folders whose Unix sockets endpoints may be. @default {[]} */
  readonly unixSocketFolders?: readonly string[];
  /** TCP listeners of this process that serve more to local clients. @default {[]} */
  readonly localListeners?: readonly SocketAddress[];
  /** Judges each connection by NetworkPolicies. @default {all are allowed} */
  readonly judge?: ConnectionJudge;
}

/** The {@linkcode TrafficCounters} while they are counted. */
export type ForwardingCounters = { -readonly [Name in keyof TrafficCounters]: number };

/** The outcome of one attempt to connect to an endpoint. Plain data. */
export interface ConnectionOutcome {
  readonly servicePort: ServicePortKey;
  readonly endpoint: EndpointKey;
  /** E.g. `timeout` or `ECONNREFUSED`; absent = connected. */
  readonly failure?: string;
}

/** What became of a connection or flow. */
export type FlowOutcome = Pick<WatchedFlow, "detail" | "endpoint" | "seenAs">;

/** The surroundings of all forwarders of one backend. */
export class Forwarding {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly engine: Engine;
  readonly log: RateLimitedLog;
  readonly openFiles: OpenFiles;
  readonly traffic: FamilyTraffic | undefined;
  readonly room: SocketRoom;
  /** Whether new connections and flows are refused. */
  draining = false;
  readonly options: Required<Omit<ForwardingOptions, "judge">>;
  /** `undefined` = NetworkPolicies are not asked. */
  readonly policies: PolicyGate | undefined;
  readonly dialer: TcpDialer;
  /** Called for Services that eject endpoints: with each failure, and the first success after one. */
  onOutcome: ((outcome: ConnectionOutcome) => void) | undefined;
  readonly clients = new ClientOrigin();
  readonly own: OwnSockets;
  readonly isShared: boolean;
  readonly endpointLoops: EndpointLoops;
  /** Counts of connections, which take memory once something depends on them. */
  readonly counts: () => SharedCounts;
  /** Watches for connections and flows. */
  readonly watches = new FlowWatches();
  readonly counters: ForwardingCounters = {
    tcpAccepted: 0,
    tcpRefused: 0,
    tcpDenied: 0,
    tcpLimited: 0,
    tcpExpired: 0,
    proxyHeaderErrors: 0,
    serverNameErrors: 0,
    tcpSilentClosed: 0,
    dialFailures: 0,
    dialTimeouts: 0,
    udpFlows: 0,
    udpMoved: 0,
    udpDropped: 0,
    udpDenied: 0,
    udpLimited: 0,
    udpExpired: 0,
    udpForeignDropped: 0,
  };
  /**
   * Open sessions and flows, and running loops. Each loop counts itself and never rejects, so a
   * failed connection affects no other.
   */
  readonly sessions = new OpenCount();
  readonly flows = new OpenCount();
  readonly loops = new OpenCount();
  readonly random: () => number;
  readonly #closing = new AbortController();

  constructor(dependencies: ForwardingDependencies, { judge, ...options }: ForwardingOptions) {
    this.clock = dependencies.clock;
    this.logger = dependencies.logger;
    this.openFiles = dependencies.openFiles ?? new OpenFiles();
    this.traffic = dependencies.traffic;
    this.own = dependencies.own ?? new OwnSockets();
    let counts = dependencies.counts;
    this.counts = () => counts ??= new SharedCounts(createCountMemory(this.openFiles.limit, 1), 0);
    this.isShared = dependencies.isShared ?? false;
    this.random = dependencies.random ?? (() => 0);
    this.log = new RateLimitedLog(dependencies);
    this.room = new SocketRoom(this);
    this.options = {
      dialTimeoutsMs: [250, 500, 1000, 2000],
      maxConnectionsPerService: 16_384,
      silentMs: 300_000,
      maxFlowsPerService: 16_384,
      unixSocketFolders: [],
      localListeners: [],
      ...options,
    };
    const { network, clock } = dependencies;
    this.engine = dependencies.engine ??
      new DenoEngine(network, clock, this.options.unixSocketFolders);
    this.endpointLoops = new EndpointLoops(this.options);
    this.policies = judge && new PolicyGate(this, judge);
    this.dialer = new TcpDialer(this);
  }

  /** Ends waits for what may come later. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /** Closes every TCP connection and every UDP flow, and ends every attempt to make one. */
  close(): void {
    this.#closing.abort();
    this.dialer.close();
    for (const forwarder of this.room.busy) forwarder.close();
  }
}

/** A count that can be waited for to reach zero. */
export class OpenCount {
  #count = 0;
  #waiting: (() => void)[] = [];

  get value(): number {
    return this.#count;
  }

  add(): void {
    this.#count++;
  }

  remove(): void {
    if (--this.#count === 0) { for (const resolve of this.#waiting.splice(0)) resolve(); }
  }

  /** Resolves when the count is zero; at once if it is. */
  async zero(): Promise<void> {
    while (this.#count > 0) {
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }
}

/** Logs each sentence once per interval, and counts the repetitions. */
export class RateLimitedLog {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #intervalMs: number;
  // One entry for each constant sentence of the code: it does not grow.
  readonly #muted = new Map<string, { until: number; suppressed: number }>();

  constructor(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
    intervalMs = 10_000,
  ) {
    this.#clock = clock;
    this.#logger = logger;
    this.#intervalMs = intervalMs;
  }

  /**
   * Warns unless this sentence was printed within the interval. `suppressed` counts the omitted
   * ones.
   */
  warn(message: string, fields: LogFields = {}): void {
    const now = this.#clock.now();
    const muted = this.#muted.get(message);
    if (muted && now < muted.until) {
      muted.suppressed++;
      return;
    }
    this.#muted.set(message, { until: now + this.#intervalMs, suppressed: 0 });
    const suppressed = muted?.suppressed ?? 0;
    this.#logger.warn(message, suppressed > 0 ? { ...fields, suppressed } : fields);
  }
}
