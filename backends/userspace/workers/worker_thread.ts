import type { Logger } from "../../../lib/log/logger.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import { type Network, systemNetwork } from "../../../lib/os/network.ts";
import { takeUncaughtErrors } from "../../../lib/os/uncaught_errors.ts";
import { type PoolMessage, READY, UNCAUGHT } from "../../../lib/os/worker_pool.ts";
import { OneAtATime } from "../../../lib/net/one_at_a_time.ts";
import { OpenFiles, type SharedOpenFiles } from "../../../lib/os/open_files.ts";
import type { FileRegion, MemoryRegion } from "../../../lib/os/shared_memory.ts";
import { systemErrorOf } from "../../../lib/os/socket_errors.ts";
import { forEachInSlices, runInSlices, urgent } from "../../../lib/os/time_slice.ts";
import {
  ConnectionJudge,
  isComplete,
  type JudgeUpdate,
} from "../../../lib/policy/connection_judge.ts";
import { type ServiceTraffic, ServiceTrafficTable } from "../../../lib/proxy/service_traffic.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { type LoopPart, NO_PART } from "../endpoint_loops.ts";
import type { Engine } from "../engine.ts";
import { type Command, LocalForwarders, type RefusedSocket } from "../forwarders.ts";
import { Forwarding } from "../forwarding.ts";
import { OwnSockets } from "../own_sockets.ts";
import { SharedCounts } from "../shared_counts.ts";
import { TcpForwarder } from "../tcp/tcp_forwarder.ts";
import type {
  ForwarderFigures,
  HeldState,
  MainMessage,
  MainNotice,
  Question,
  WorkerMessage,
  WorkerNotice,
  WorkerReport,
  WorkerSettings,
} from "./worker_protocol.ts";

/** The edges of a worker. */
export interface WorkerEdges {
  readonly clock: Clock;
  readonly network: Network;
  readonly random: () => number;
  /** What only a process has: its own limit of open files, memory by its place in a file, an engine. */
  readonly process?: {
    readonly openFiles: SharedOpenFiles;
    readonly memoryAt: (region: FileRegion) => ArrayBufferLike;
    readonly engine: Engine;
  };
}

/** The part of a worker's global scope that is used. */
export interface WorkerScope {
  onmessage: ((event: MessageEvent<PoolMessage>) => void) | null;
  postMessage(message: unknown): void;
}

/** Makes this thread a worker: it forwards as the main thread commands. */
export function serveAsWorker(): void {
  const scope = globalThis as unknown as WorkerScope;
  // One of them ends neither the main thread nor a worker with its connections.
  takeUncaughtErrors((error) => scope.postMessage([UNCAUGHT, error]));
  serveScope(scope, { clock: systemClock, network: systemNetwork, random: Math.random });
}

/** Serves the main thread over a scope, with a {@linkcode WorkerFamily} for each topic, which it returns. */
export function serveScope(
  scope: WorkerScope,
  edges: WorkerEdges,
): ReadonlyMap<string, WorkerFamily> {
  const families = new Map<string, WorkerFamily>();
  scope.onmessage = ({ data: [topic, posted] }) => {
    const message = posted as MainMessage;
    const known = families.get(topic);
    if (message[0] !== "start") return void known?.receive(message);
    if (known) return known.adopt();
    const post = (answer: WorkerMessage) => scope.postMessage([topic, answer]);
    families.set(topic, new WorkerFamily(edges, message[1], post));
  };
  scope.postMessage(READY);
  return families;
}

/** Forwards for one IP family in a worker, as the main thread commands. */
export class WorkerFamily {
  readonly #local: LocalForwarders;
  readonly #post: (message: WorkerMessage) => void;
  readonly #clock: Clock;
  readonly #judge: ConnectionJudge | undefined;
  readonly #judged = Promise.withResolvers<void>();
  readonly #forwarding: Forwarding;
  readonly #openFiles: OpenFiles;
  /** The numbers of each forwarder by which it is seen whether something has changed since a report. */
  #reported = new WeakMap<object, { connections: number; counted: number }>();
  readonly #turns = new OneAtATime();
  /** Updates of the policies in progress. */
  readonly #judging = new OneAtATime();
  readonly #frontends = new Map<ServicePortKey, LoopPart>();
  readonly #memoryAt: (region: MemoryRegion) => ArrayBufferLike;
  readonly #affinity = new Map<ServicePortKey, MemoryRegion>();
  /** Frontends that no command has named yet. */
  #unclaimed = new Set<ServicePortKey>();
  readonly #isProcess: boolean;

  constructor(
    edges: WorkerEdges,
    settings: WorkerSettings,
    post: (message: WorkerMessage) => void,
  ) {
    this.#post = post;
    const tell = (notice: WorkerNotice) => post(["tell", notice]);
    const { index, options, sockets, countsTraffic } = settings;
    const { clock, network, random, process } = edges;
    this.#isProcess = process !== undefined;
    const openFiles = this.#openFiles = process
      ? OpenFiles.inThread(process.openFiles, 0)
      : OpenFiles.inThread(settings.openFiles, index);
    this.#memoryAt = (region) =>
      region instanceof SharedArrayBuffer ? region : process!.memoryAt(region);
    const offset = settings.now - clock.now();
    this.#clock = { ...clock, now: () => clock.now() + offset };
    if (settings.isJudged) {
      this.#judge = new ConnectionJudge();
      // No command is carried out before the policies are known: connections would evade them.
      void this.#turns.run(() => this.#judged.promise);
    }
    // The main thread bounds the rows that others see.
    const traffic = countsTraffic &&
      new ServiceTrafficTable({ maxServices: Infinity, maxServicePorts: Infinity })
        .of(settings.family);
    const { tables, rateTags, rateTimes } = settings.counts;
    const counts = new SharedCounts({
      tables: tables.map(this.#memoryAt),
      rateTags: this.#memoryAt(rateTags),
      rateTimes: this.#memoryAt(rateTimes),
    }, index);
    const own = new OwnSockets(this.#memoryAt(sockets), index);
    // The worker before may have counted while it was being forgotten.
    counts.forgetOwn();
    own.forgetOwn();
    this.#forwarding = new Forwarding({
      ...{ network, random, clock: this.#clock, own, counts },
      ...{ logger: toldLogger(tell), openFiles, isShared: true, ...(traffic && { traffic }) },
      ...(process && { engine: process.engine }),
    }, { ...options, ...(this.#judge && { judge: this.#judge }) });
    this.#forwarding.onOutcome = (outcome) => tell({ kind: "outcome", outcome });
    this.#forwarding.watches.onReport = (flow) => tell({ kind: "flow", flow });
    this.#local = new LocalForwarders(this.#forwarding);
  }

  /** Another main process takes over: it says all that is wanted, and then gets all figures. */
  adopt(): void {
    this.#local.disclaim();
    this.#unclaimed = new Set(this.#frontends.keys());
  }

  /** Listens no more at once, and resolves when the last connection has ended or this time is over. */
  async retire(timeoutMs: number): Promise<void> {
    this.#local.closeSockets();
    await this.#local.drain(timeoutMs);
  }

  async receive(message: Exclude<MainMessage, readonly ["start", ...unknown[]]>): Promise<void> {
    if (message[0] === "tell") return this.#hear(message[1]);
    const [, id, question] = message;
    try {
      this.#post(["answer", id, await this.#answer(question)]);
    } catch (error) {
      this.#post(["failure", id, messageOf(error)]);
    }
  }

  #answer(question: Question): unknown {
    switch (question.kind) {
      case "apply":
        // In the order in which they come.
        return this.#turns.run(() => this.#applyAll(question.commands));
      case "report":
        // Threads count them together with the main thread.
        if (this.#isProcess) this.#openFiles.setListening(question.listeners);
        return this.#report();
      case "held":
        return this.#held();
      case "remembered":
        return this.#local.remembered(question.key, question.client);
      case "follow":
        return this.#follow(question.update);
      case "recheck":
        return this.#local.recheck(question.addresses);
      case "drain":
        return this.#local.drain(question.timeoutMs);
      case "close":
        return this.#local.close();
    }
  }

  /** Takes an update after those before it: a whole plan would undo a change that overtakes it. */
  #follow(update: JudgeUpdate): Promise<void> {
    return this.#judging.run(async () => {
      const steps = this.#judge?.followInSteps(update);
      if (steps) await runInSlices(urgent(this.#clock), steps);
      if (isComplete(update)) this.#judged.resolve();
    });
  }

  #report(): WorkerReport {
    const services = new Map<ServicePortKey, ForwarderFigures>();
    for (const [key, forwarder] of this.#local.forwarders) {
      const { connections, trafficSoFar: traffic } = forwarder;
      const counted = traffic === undefined ? 0 : eventsOf(traffic);
      const reported = this.#reported.get(forwarder);
      if (connections === (reported?.connections ?? 0) && counted === (reported?.counted ?? 0)) {
        continue;
      }
      this.#reported.set(forwarder, { connections, counted });
      services.set(key, { connections, traffic });
    }
    const { counters } = this.#forwarding;
    return { counters, services, refused: this.#openFiles.takeRefused() };
  }

  #held(): HeldState {
    return { sockets: [...this.#local.sockets.keys()], affinity: [...this.#affinity] };
  }

  #hear(notice: MainNotice): void {
    if (notice.kind === "watch") {
      const { query, id } = notice;
      return void this.#forwarding.watches.ask(id, { query, now: this.#clock.now() });
    }
    const forwarder = this.#local.forwarders.get(notice.key);
    if (forwarder instanceof TcpForwarder) forwarder.expectFailing(notice.endpoint);
  }

  /** Returns the sockets that could not be opened. */
  async #applyAll(commands: readonly Command[]): Promise<readonly RefusedSocket[]> {
    const refused: RefusedSocket[] = [];
    await forEachInSlices(this.#clock, commands, (command) => {
      if (command.op === "frontends") return this.#replaceFrontends(command.key, command.frontends);
      if (command.op === "release") {
        for (const key of this.#unclaimed) this.#replaceFrontends(key, []);
        // Only now does the main process know every ServicePort.
        this.#reported = new WeakMap();
      }
      try {
        this.#local.apply(this.#withMemory(command));
      } catch (error) {
        if (command.op !== "open") throw error;
        const { socket } = command;
        refused.push({ socket, message: messageOf(error), code: systemErrorOf(error) });
      }
    });
    // A socket is closed only when the accept that waits on it has been taken back, as in the backend.
    if (commands.some(({ op }) => op === "close")) await this.#clock.sleep(0);
    return refused;
  }

  #withMemory(command: Command): Command {
    if (command.op === "remove") this.#affinity.delete(command.key);
    if (command.op !== "forward") return command;
    const { affinity, plan } = command;
    if (!affinity) {
      this.#affinity.delete(plan.key);
      return command;
    }
    this.#affinity.set(plan.key, affinity);
    return { ...command, plan: { ...plan, affinityMemory: this.#memoryAt(affinity) } };
  }

  #replaceFrontends(key: ServicePortKey, frontends: LoopPart["frontends"]): void {
    this.#unclaimed.delete(key);
    const from = this.#frontends.get(key) ?? NO_PART;
    const to: LoopPart = { frontends, endpoints: [] };
    this.#forwarding.endpointLoops.replace({ key, protocol: "UDP" }, { from, to });
    if (frontends.length > 0) this.#frontends.set(key, to);
    else this.#frontends.delete(key);
  }
}

/** A number that grows with each event. */
function eventsOf({ opened, open, ...counts }: Readonly<ServiceTraffic>): number {
  const { bytesFromClients, bytesToClients, packetsFromClients, packetsToClients } = counts;
  return 2 * opened - open + bytesFromClients + bytesToClients + packetsFromClients +
    packetsToClients;
}

/** Forwarders only warn. */
function toldLogger(tell: (notice: WorkerNotice) => void): Logger {
  const logger: Logger = {
    error: (message, fields = {}) => logger.warn(message, fields),
    warn: (message, fields = {}) => tell({ kind: "log", message, fields: { ...fields } }),
    info() {},
    verbose() {},
    enabled: () => false,
    with: () => logger,
  };
  return logger;
}
