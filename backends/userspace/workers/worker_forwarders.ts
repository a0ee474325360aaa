import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import type { SharedOpenFiles } from "../../../lib/os/open_files.ts";
import type { PoolSubscriber, WorkerPool } from "../../../lib/os/worker_pool.ts";
import type { ConnectionJudge } from "../../../lib/policy/connection_judge.ts";
import type { JudgeUpdate } from "../../../lib/policy/judge_update.ts";
import type { SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { LoopPart } from "../endpoint_loops.ts";
import type { FailedSocket, Forwarders, ServiceForwarder, SocketUse } from "../forwarders.ts";
import type { Forwarding, ForwardingCounters, ForwardingOptions } from "../forwarding.ts";
import type { SocketKey } from "../listeners.ts";
import { createSharedSockets, OwnSockets } from "../own_sockets.ts";
import { createCountMemory, SharedCounts } from "../shared_counts.ts";
import { WorkerLink } from "./worker_link.ts";
import type {
  Answers,
  ClientFacts,
  Command,
  MainNotice,
  Place,
  PublishedFrontends,
  Question,
  RefusedSocket,
  WorkerMessage,
  WorkerNotice,
  WorkerReport,
  WorkerSettings,
} from "./worker_protocol.ts";
import { WorkerForwarder, WorkerSocket } from "./worker_tables.ts";

interface WorkerForwardersDependencies {
  /** Of the main thread, which forwards nothing itself. */
  readonly forwarding: Forwarding;
  readonly pool: WorkerPool;
  readonly openFiles: SharedOpenFiles;
}

interface WorkerForwardersOptions extends ForwardingOptions {
  readonly family: IpFamily;
}

/** Interval of reports, so that an ending worker takes few counts with it and a hung one is noticed. */
const REPORT_MS = 1000;
/** Longest time for which a tool waits for reports. */
const REFRESH_MS = 2000;
/** Time in which another worker may find the socket of one that has ended still open. */
const MOVE_MS = 10_000;
const RETRY_MS = 20;
/** A worker that drains for so much longer has hung. */
const DRAIN_GRACE_MS = 2000;

/** Forwards in the workers of a pool. */
export class WorkerForwarders implements Forwarders, PoolSubscriber {
  readonly threads: number;
  readonly #forwarding: Forwarding;
  readonly #pool: WorkerPool;
  readonly #settings: Omit<WorkerSettings, "index" | "now">;
  readonly #judge: ConnectionJudge | undefined;
  /** The workers that run. */
  readonly #links = new Map<number, WorkerLink>();
  readonly #forwarders = new Map<ServicePortKey, WorkerForwarder>();
  readonly #context: ConstructorParameters<typeof WorkerForwarder>[0];
  readonly #sockets = new Map<SocketKey, WorkerSocket>();
  /** Frontends for UDP, by which a datagram of this process is recognized. */
  readonly #frontends = new Map<string, PublishedFrontends>();
  #facts: ClientFacts | undefined;
  /** ServicePorts for UDP of each worker. */
  readonly #uses = new Map<number, number>();
  /** The counters of each worker, as of its last report. */
  readonly #counters = new Map<number, WorkerReport["counters"]>();
  /** Forwarders whose plan is to be sent. */
  readonly #touched = new Set<WorkerForwarder>();
  /** Sockets to open once another worker has closed them. */
  readonly #moving = new Set<WorkerSocket>();
  readonly #failed: FailedSocket[] = [];
  readonly #stop = new AbortController();

  constructor(
    { forwarding, pool, openFiles }: WorkerForwardersDependencies,
    { family, judge, ...options }: WorkerForwardersOptions,
  ) {
    this.threads = pool.count;
    this.#forwarding = forwarding;
    this.#pool = pool;
    this.#judge = judge;
    this.#context = {
      ...{ clock: forwarding.clock, traffic: forwarding.traffic },
      end: (forwarder) => this.#send(forwarder, { op: "remove", key: forwarder.key, ends: true }),
      skip: (forwarder) => this.#skip(forwarder),
      touch: (forwarder) => void this.#touched.add(forwarder),
    };
    this.#settings = {
      ...{ family, openFiles, sockets: createSharedSockets() },
      counts: createCountMemory(openFiles.limit, pool.count),
      countsTraffic: forwarding.traffic !== undefined,
      isJudged: judge !== undefined,
      options: { ...options, ...dividedBounds(forwarding, pool.count) },
    };
  }

  get summary(): string {
    const { count, restarts, running } = this.#pool;
    const missing = running.length < count ? `, ${running.length} of which run` : "";
    return `; ${count} workers forward${missing}${restarts > 0 ? `, restarted ${restarts}x` : ""}`;
  }

  async start(): Promise<void> {
    this.#forwarding.watches.onAsk = (id, query) => this.#tell({ kind: "watch", id, query });
    this.#pool.subscribe(this.#settings.family, this);
    await this.#pool.start();
    void this.#reportAgain();
  }

  create(plan: ServicePlan): WorkerForwarder {
    const forwarder = new WorkerForwarder(this.#context, plan);
    if (!forwarder.isTcp) this.#place(forwarder, this.#links.keys());
    this.#forwarders.set(plan.key, forwarder);
    this.#touched.add(forwarder);
    return forwarder;
  }

  remove(removed: ServiceForwarder): void {
    const forwarder = removed as WorkerForwarder;
    this.#touched.delete(forwarder);
    const { key, isTcp } = forwarder;
    this.#forwarders.delete(key);
    this.#queueFor(forwarder, { op: "remove", key, ends: !isTcp });
    this.#place(forwarder, []);
    // No worker reports on its connections any more.
    for (const index of this.#counters.keys()) forwarder.count(index, undefined);
  }

  /**
   * Finds out first whether the place is free: a shared socket would also open where a program of
   * the same user shares its own. Another socket of the workers may not be open yet.
   */
  open(place: Place, { at, forwarder }: SocketUse): WorkerSocket {
    const use = { at, forwarder: forwarder as WorkerForwarder };
    const { engine } = this.#forwarding;
    const address = { hostname: place.address, port: place.port };
    const socket = new WorkerSocket(place, use, (socket) => this.#close(socket));
    if (this.#sockets.has(socket.key)) {
      throw Object.assign(new Error("another Service has the place"), { code: "EADDRINUSE" });
    }
    (use.forwarder.isTcp ? engine.listenTcp(address) : engine.listenUdp(address)).close();
    this.#sockets.set(socket.key, socket);
    this.#send(use.forwarder, socket.command);
    return socket;
  }

  assign(assigned: WorkerSocket, { at, forwarder }: SocketUse): void {
    const use = { at, forwarder: forwarder as WorkerForwarder };
    const { worker } = assigned;
    assigned.use = use;
    assigned.worker = use.forwarder.worker;
    if (worker === assigned.worker) return this.#send(use.forwarder, assigned.command);
    if (worker !== undefined) {
      this.#links.get(worker)?.queue([{ op: "close", socket: assigned.key }]);
    }
    this.#moving.add(assigned);
  }

  share({ interfaceAddresses, localTraffic }: SharedPlan): void {
    this.#facts = { interfaceAddresses, localTraffic };
    this.#queueForAll({ op: "share", shared: this.#facts });
  }

  replaceFrontends(
    { key, protocol }: Pick<ServicePlan, "key" | "protocol">,
    { frontends }: LoopPart,
  ): void {
    if (protocol !== "UDP") return;
    const published = { key, protocol, frontends };
    if (frontends.length > 0) this.#frontends.set(key, published);
    else this.#frontends.delete(key);
    this.#queueForAll({ op: "frontends", ...published });
  }

  async settle(): Promise<readonly FailedSocket[]> {
    for (const forwarder of this.#touched) this.#sendPlan(forwarder);
    await this.#flush();
    for (const socket of this.#moving) this.#send(socket.use.forwarder, socket.command);
    this.#moving.clear();
    // A worker may have started or ended meanwhile.
    while (this.#links.values().some(({ isBusy }) => isBusy)) await this.#flush();
    if (this.#links.size === 0) throw new Error("Cannot forward: no worker runs");
    return this.#failed.splice(0);
  }

  async refresh(): Promise<void> {
    const done = new AbortController();
    const reported = [...this.#links].map(async ([index, link]) =>
      this.#add(index, await link.ask({ kind: "report" }))
    );
    const late = this.#forwarding.clock.sleep(REFRESH_MS, done.signal).catch(() => {});
    await Promise.race([Promise.allSettled(reported), late]);
    done.abort();
  }

  async follow(update: JudgeUpdate): Promise<void> {
    const sent = await Promise.all(this.#links.values().map((link) => link.follow(update)));
    await Promise.allSettled(sent.map(({ done }) => done));
  }

  async recheck(addresses: readonly IpAddress[]): Promise<number> {
    const counts = await this.#ask({ kind: "recheck", addresses });
    return counts.reduce((sum, count) => sum + count, 0);
  }

  async drain(timeoutMs: number): Promise<void> {
    await this.#flush();
    await this.#ask({ kind: "drain", timeoutMs }, 2 * timeoutMs + DRAIN_GRACE_MS);
    await this.refresh();
  }

  async close(): Promise<void> {
    await this.#flush();
    await this.#ask({ kind: "close" });
    this.#stop.abort();
    for (const link of this.#links.values()) link.close(new Error("closed"));
    this.#links.clear();
  }

  onStarted(index: number): void {
    const link = new WorkerLink({
      clock: this.#forwarding.clock,
      post: (message) => this.#pool.post(index, this.#settings.family, message),
      hear: (notice) => this.#hear(index, notice),
      onRefused: (refused) => this.#onRefused(refused),
      onHang: () => this.#pool.giveUp(index),
    });
    this.#links.set(index, link);
    const fail = (error: unknown) => this.#fail(index, error);
    const { now } = this.#forwarding.clock;
    link.ask({ kind: "start", settings: { ...this.#settings, index, now: now() } }).catch(fail);
    const judge = this.#judge;
    judge?.turns.run(() => link.follow(judge.snapshot())).then(({ done }) => done).catch(fail);
    link.queue(this.#commandsFor(index));
    void this.#flush();
  }

  onEnded(index: number, reason: Error): void {
    this.#links.get(index)?.close(reason);
    this.#links.delete(index);
    for (const forwarder of this.#forwarders.values()) forwarder.count(index, undefined);
    this.#counters.delete(index);
    this.#forwarding.openFiles.forgetThread(index);
    new OwnSockets(this.#settings.sockets, index).forgetOwn();
    new SharedCounts(this.#settings.counts, index).forgetOwn();
    this.#moveFrom(index);
    void this.#flush();
  }

  onMessage(index: number, message: unknown): void {
    this.#links.get(index)?.receive(message as WorkerMessage);
  }

  #hear(index: number, notice: WorkerNotice): void {
    const { clock, log, outcomes, watches } = this.#forwarding;
    switch (notice.kind) {
      case "log":
        return log.warn(notice.message, notice.fields);
      case "flow":
        return watches.report(notice.flow, clock.now());
      case "outcome": {
        const { servicePort: key, endpoint, failure } = notice.outcome;
        outcomes?.observe(notice.outcome);
        if (failure !== undefined) this.#tell({ kind: "failing", key, endpoint }, index);
      }
    }
  }

  #close(socket: WorkerSocket): void {
    const { key, use: { forwarder }, worker } = socket;
    this.#sockets.delete(key);
    this.#moving.delete(socket);
    const command: Command = { op: "close", socket: key };
    if (forwarder.isTcp) this.#queueForAll(command);
    else if (worker !== undefined) this.#links.get(worker)?.queue([command]);
  }

  /** Health changes at any time, not only in a sync. */
  #skip(forwarder: WorkerForwarder): void {
    const { key, unhealthy } = forwarder;
    if (this.#forwarders.get(key) !== forwarder) return;
    this.#send(forwarder, { op: "skip", key, unhealthy });
    void this.#flush();
  }

  #sendPlan(forwarder: WorkerForwarder): void {
    this.#touched.delete(forwarder);
    this.#queueFor(forwarder, ...forwarder.commands());
  }

  #send(forwarder: WorkerForwarder, command: Command): void {
    if (this.#touched.has(forwarder)) this.#sendPlan(forwarder);
    this.#queueFor(forwarder, command);
  }

  /** Queues commands for the workers that have a forwarder. */
  #queueFor({ isTcp, worker }: WorkerForwarder, ...commands: readonly Command[]): void {
    if (isTcp) this.#queueForAll(...commands);
    else if (worker !== undefined) this.#links.get(worker)?.queue(commands);
  }

  #queueForAll(...commands: readonly Command[]): void {
    for (const link of this.#links.values()) link.queue(commands);
  }

  /** Resolves when the workers have carried out what is queued. Never rejects. */
  async #flush(): Promise<void> {
    await Promise.all(
      [...this.#links].map(([index, link]) =>
        link.flush().catch((error) => this.#fail(index, error))
      ),
    );
  }

  /** Ends a worker that cannot do what it has to. One that has ended is replaced already. */
  #fail(index: number, error: unknown): void {
    if (this.#links.has(index) && this.#pool.isRunning(index)) {
      this.#pool.end(index, messageOf(error));
    }
  }

  /** Tells every worker, or every other one. */
  #tell(notice: MainNotice, except?: number): void {
    for (const [index, link] of this.#links) if (index !== except) link.tell(notice);
  }

  /** Resolves to the answers of the workers that answer. */
  async #ask<Kind extends Question["kind"]>(
    question: Extract<Question, { readonly kind: Kind }>,
    withinMs?: number,
  ): Promise<readonly Answers[Kind][]> {
    const asked = this.#links.values().map((link) => link.ask<Kind>(question, withinMs));
    const settled = await Promise.allSettled(asked);
    return settled.flatMap((each) => each.status === "fulfilled" ? [each.value] : []);
  }

  /** Gives a ServicePort for UDP to the worker that has the fewest, or to none if there is none. */
  #place(forwarder: WorkerForwarder, workers: Iterable<number>): void {
    const usesOf = (worker: number) => this.#uses.get(worker) ?? 0;
    const { worker: before } = forwarder;
    if (before !== undefined) this.#uses.set(before, usesOf(before) - 1);
    const [least] = [...workers].toSorted((left, right) => usesOf(left) - usesOf(right));
    if (least !== undefined) this.#uses.set(least, usesOf(least) + 1);
    forwarder.worker = least;
  }

  /** What a worker has to know that knows nothing. ServicePorts without a worker become its own. */
  *#commandsFor(worker: number): Generator<Command> {
    if (this.#facts) yield { op: "share", shared: this.#facts };
    for (const published of this.#frontends.values()) yield { op: "frontends", ...published };
    for (const forwarder of this.#forwarders.values()) {
      if (!forwarder.isTcp && forwarder.worker === undefined) this.#place(forwarder, [worker]);
      if (forwarder.isTcp || forwarder.worker === worker) yield* forwarder.commands();
    }
    for (const socket of this.#sockets.values()) {
      const { forwarder } = socket.use;
      if (!forwarder.isTcp && forwarder.worker !== worker) continue;
      this.#move(socket);
      yield socket.command;
    }
  }

  /** Gives the ServicePorts of a worker that has ended to the others. */
  #moveFrom(ended: number): void {
    for (const forwarder of this.#forwarders.values()) {
      if (forwarder.worker !== ended) continue;
      this.#place(forwarder, this.#links.keys());
      this.#queueFor(forwarder, ...forwarder.commands());
    }
    for (const socket of this.#sockets.values()) {
      if (socket.worker !== ended) continue;
      this.#move(socket);
      this.#queueFor(socket.use.forwarder, socket.command);
    }
  }

  /**
   * Notes where a socket is about to be opened. The one of a worker that has ended is closed a moment
   * later.
   */
  #move(socket: WorkerSocket): void {
    // A second time, it would find its own address in use.
    this.#moving.delete(socket);
    socket.worker = socket.use.forwarder.worker;
    socket.movedAt = this.#forwarding.clock.now();
  }

  async #reportAgain(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.refresh();
      await this.#forwarding.clock.sleep(REPORT_MS, signal).catch(() => {});
    }
  }

  /** Takes what a worker has counted. */
  #add(worker: number, { counters, services, refused }: WorkerReport): void {
    if (!this.#links.has(worker)) return;
    const total = this.#forwarding.counters;
    const before = this.#counters.get(worker);
    this.#counters.set(worker, counters);
    for (const name of Object.keys(counters) as (keyof ForwardingCounters)[]) {
      total[name] += counters[name] - (before?.[name] ?? 0);
    }
    for (const [key, figures] of services) this.#forwarders.get(key)?.count(worker, figures);
    for (const [use, count] of refused) this.#forwarding.openFiles.countRefused(use, count);
  }

  #onRefused(refused: readonly RefusedSocket[]): void {
    const { clock, log } = this.#forwarding;
    for (const { socket: key, message, code } of refused) {
      const socket = this.#sockets.get(key);
      if (!socket || this.#failed.some((each) => each.socket === socket)) continue;
      const isEarly = clock.now() - (socket.movedAt ?? -Infinity) < MOVE_MS;
      if (isEarly && code === "EADDRINUSE") clock.setTimer(RETRY_MS, () => this.#reopen(socket));
      else {
        log.warn("A worker cannot open a socket", { socket: socket.use.at.socket, error: message });
        this.#failed.push({ socket, error: Object.assign(new Error(message), { code }) });
      }
    }
  }

  #reopen(socket: WorkerSocket): void {
    if (this.#sockets.get(socket.key) !== socket || this.#stop.signal.aborted) return;
    this.#send(socket.use.forwarder, socket.command);
    void this.#flush();
  }
}

/** Each worker has its part of the bound of connections; a ServicePort for UDP is in one worker. */
function dividedBounds(
  { options: { maxConnectionsPerService } }: Forwarding,
  count: number,
): Pick<ForwardingOptions, "maxConnectionsPerService"> {
  return { maxConnectionsPerService: Math.max(1, Math.floor(maxConnectionsPerService / count)) };
}
