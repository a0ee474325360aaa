/**
 * The main thread's side of workers, threads or data processes: it sends plans and sockets, and adds up what they count. Each
 * worker has every forwarder and every socket for TCP; those of a ServicePort for UDP are in one of them.
 *
 * @module
 */
import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import type { MemoryRegion, SharedMemory } from "../../../lib/os/shared_memory.ts";
import type { PoolSubscriber, RelayWorkers, WorkerPool } from "../../../lib/os/worker_pool.ts";
import type { ConnectionJudge, JudgeUpdate } from "../../../lib/policy/connection_judge.ts";
import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import { AFFINITY_BYTES } from "../affinity_table.ts";
import { EndpointPicker } from "../endpoint_picker.ts";
import type { Command, Forwarders, OpenCommand, RefusedSocket } from "../forwarders.ts";
import type { Forwarding, ForwardingCounters, ForwardingOptions } from "../forwarding.ts";
import type { SocketKey } from "../listeners.ts";
import { SHARED_SOCKETS_BYTES } from "../own_sockets.ts";
import { createCountMemory } from "../shared_counts.ts";
import { WorkerLink } from "./worker_link.ts";
import type {
  Answers,
  ForwarderFigures,
  MainNotice,
  Question,
  WorkerMessage,
  WorkerNotice,
  WorkerReport,
  WorkerSettings,
} from "./worker_protocol.ts";

/** Interval of reports, so that an ending worker takes few counts with it and a hung one is noticed. */
const REPORT_MS = 1000;
/** Longest time for which a tool waits for reports, and a drain for workers that are to be done. */
const REFRESH_MS = 2000;
/** Longest time for which workers may end everything: a supervisor kills after 30 s, a drain included. */
const CLOSE_MS = 5000;
/** Time in which a worker may find the socket that was in another one still open. */
const MOVE_MS = 10_000;
const RETRY_MS = 20;

/** A socket of workers. */
interface WorkerSocket {
  /** One, or those of several ServicePorts that share it by server names. */
  readonly commands: Map<ServicePortKey, OpenCommand>;
  readonly isTcp: boolean;
  /** The worker that has it, for UDP; `undefined` = none runs. */
  home: number | undefined;
}

/** Forwards in the workers of a pool. */
export class WorkerForwarders implements Forwarders, PoolSubscriber {
  readonly threads: number;
  readonly forwarding: Forwarding;
  readonly #pool: WorkerPool;
  readonly #note: string;
  readonly #settings: Omit<WorkerSettings, "index" | "now">;
  readonly #judge: ConnectionJudge | undefined;
  /** The workers that run. */
  readonly #links = new Map<number, WorkerLink>();
  readonly #forwarders = new Map<ServicePortKey, WorkerForwarder>();
  readonly #sockets = new Map<SocketKey, WorkerSocket>();
  /** Frontends for UDP, by which a datagram of this process is recognized. */
  readonly #frontends = new Map<ServicePortKey, Command>();
  #facts: Command | undefined;
  /** The sockets that data processes have from before this process, by a worker that has them. */
  readonly #held = new Map<SocketKey, number>();
  readonly #heldAffinity = new Map<ServicePortKey, MemoryRegion>();
  #homes = 0;
  readonly #failed = new Map<SocketKey, RefusedSocket>();
  /** When sockets for UDP went to another worker for the last time. */
  #movedAt = -Infinity;
  readonly #stop = new AbortController();

  /** `forwarding` is that of the main thread, which forwards nothing itself. */
  constructor(
    forwarding: Forwarding,
    { note = "", pool, openFiles }: Extract<RelayWorkers, { readonly kind: "workers" }>,
    { family, judge, ...options }: ForwardingOptions & { readonly family: IpFamily },
  ) {
    this.threads = pool.count;
    this.forwarding = forwarding;
    this.#pool = pool;
    this.#note = note;
    this.#judge = judge;
    const { options: { maxConnectionsPerService: most } } = forwarding;
    const { memory } = pool.carrier;
    this.#settings = {
      ...{ family, openFiles, sockets: memory.allocate(SHARED_SOCKETS_BYTES) },
      counts: createCountMemory(openFiles.limit, pool.count, memory),
      countsTraffic: forwarding.traffic !== undefined,
      isJudged: judge !== undefined,
      // Each worker has its part of the bound of connections.
      options: {
        ...options,
        maxConnectionsPerService: Math.max(1, Math.floor(most / pool.count)),
      },
    };
  }

  get summary(): string {
    const { carrier: { kind }, count, restarts, running } = this.#pool;
    const missing = running.length < count ? `, ${running.length} of which run` : "";
    const plural = kind === "threads" ? "workers forward" : "data processes forward";
    const what = count === 1 && kind === "processes" ? "data process forwards" : plural;
    const again = restarts > 0 ? `, restarted ${restarts}x` : "";
    return `; ${count} ${what}${missing}${again}${this.#note}`;
  }

  async start(): Promise<void> {
    this.forwarding.watches.onAsk = (id, query) => this.#tell({ kind: "watch", id, query });
    this.#pool.subscribe(this.#settings.family, this);
    await this.#pool.start();
    if (this.#pool.carrier.kind === "processes") await this.#takeOver();
    void this.#reportAgain();
  }

  apply(command: Command): void {
    if (this.#pool.isLeft) return;
    switch (command.op) {
      case "share":
        this.#facts = command;
        break;
      case "frontends":
        if (command.frontends.length > 0) this.#frontends.set(command.key, command);
        else this.#frontends.delete(command.key);
        break;
      case "forward": {
        const { plan } = command;
        const known = this.#forwarders.get(plan.key);
        const forwarder = known ?? new WorkerForwarder(
          this.forwarding,
          this.#pool.carrier.memory,
          plan,
          this.#heldAffinity.get(plan.key),
        );
        if (known) known.update(plan);
        else this.#forwarders.set(plan.key, forwarder);
        for (const each of forwarder.commands()) this.#queueForAll(each);
        return;
      }
      case "skip":
        // Health changes at any time, not only in a sync.
        this.#forwarders.get(command.key)?.skip(command.unhealthy);
        this.#queueForAll(command);
        return void this.#flush();
      case "remove": {
        const forwarder = this.#forwarders.get(command.key);
        this.#forwarders.delete(command.key);
        // No worker reports on its connections any more.
        for (const index of this.#links.keys()) forwarder?.count(index, undefined);
        if (forwarder) this.forwarding.traffic?.leave(forwarder.plan.name);
        forwarder?.free();
        break;
      }
      case "open":
        return this.#open(command);
      case "leave":
        this.#sockets.get(command.socket)?.commands.delete(command.key);
        break;
      case "close": {
        const socket = this.#sockets.get(command.socket);
        this.#sockets.delete(command.socket);
        return socket && this.#queueFor(socket, command);
      }
    }
    this.#queueForAll(command);
  }

  async settle(): Promise<readonly RefusedSocket[]> {
    // A worker may start or end meanwhile.
    do await this.#flush(); while (this.#links.values().some(({ isBusy }) => isBusy));
    if (this.#links.size === 0) throw new Error("Cannot forward: no worker runs");
    const failed = [...this.#failed.values()];
    this.#failed.clear();
    return failed;
  }

  connections(key: ServicePortKey): number {
    return this.#forwarders.get(key)?.connections ?? 0;
  }

  /** Any worker knows it. */
  async remembered(key: ServicePortKey, client: string): Promise<AffinityEntry | undefined> {
    const [link] = this.#links.values();
    const asked = link?.ask({ kind: "remembered", key, client });
    return await this.#atMost(REFRESH_MS, asked ?? Promise.resolve(undefined)) ?? undefined;
  }

  async refresh(): Promise<void> {
    if (this.#pool.isLeft) return;
    const { listeners } = this.forwarding.openFiles.open;
    const reported = [...this.#links].map(async ([index, link]) =>
      this.#add(index, link, await link.ask({ kind: "report", listeners }))
    );
    await this.#atMost(REFRESH_MS, Promise.allSettled(reported));
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
    if (this.#pool.isLeft) return;
    const drained = this.#flush().then(() => this.#ask({ kind: "drain", timeoutMs }));
    await this.#atMost(timeoutMs + REFRESH_MS, drained);
    await this.refresh();
  }

  async close(): Promise<void> {
    if (!this.#pool.isLeft) {
      await this.#atMost(CLOSE_MS, this.#flush().then(() => this.#ask({ kind: "close" })));
    }
    this.#stop.abort();
    for (const link of this.#links.values()) link.close(new Error("closed"));
    this.#links.clear();
  }

  /** A worker that knows nothing gets everything; sockets for UDP without a worker become its own. */
  onStarted(index: number): void {
    const { clock } = this.forwarding;
    const { family } = this.#settings;
    const link = new WorkerLink(
      clock,
      (message) => this.#pool.post(index, family, message),
      (notice) => this.#hear(index, notice),
      (refused) => this.#onRefused(refused),
    );
    this.#links.set(index, link);
    link.post(["start", { ...this.#settings, index, now: this.#pool.carrier.now() }]);
    const judge = this.#judge;
    judge?.turns.run(() => link.follow(judge.snapshot())).then(({ done }) => done)
      .catch((error) => this.#fail(index, error));
    if (this.#facts) link.queue([this.#facts]);
    link.queue(this.#frontends.values());
    for (const forwarder of this.#forwarders.values()) link.queue(forwarder.commands());
    for (const socket of this.#sockets.values()) {
      if (!socket.isTcp && (socket.home ??= this.#homeOf(socket)) !== index) continue;
      link.queue(socket.commands.values());
    }
    void this.#flush();
  }

  onEnded(index: number, reason: Error): void {
    const { clock, openFiles } = this.forwarding;
    this.#links.get(index)?.close(reason);
    this.#links.delete(index);
    this.#movedAt = clock.now();
    for (const forwarder of this.#forwarders.values()) {
      forwarder.count(index, undefined);
      if (forwarder.home === index) forwarder.home = undefined;
    }
    openFiles.forgetThread(index);
    for (const socket of this.#sockets.values()) {
      if (socket.isTcp || socket.home !== index) continue;
      socket.home = this.#homeOf(socket);
      for (const command of socket.commands.values()) this.#queueFor(socket, command);
    }
    void this.#flush();
  }

  onMessage(index: number, message: unknown): void {
    this.#links.get(index)?.receive(message as WorkerMessage);
  }

  #hear(index: number, notice: WorkerNotice): void {
    const { clock, log, onOutcome, watches } = this.forwarding;
    switch (notice.kind) {
      case "log":
        return log.warn(notice.message, notice.fields);
      case "flow":
        return watches.report(notice.flow, clock.now());
      case "outcome": {
        const { servicePort: key, endpoint, failure } = notice.outcome;
        onOutcome?.(notice.outcome);
        if (failure !== undefined) this.#tell({ kind: "failing", key, endpoint }, index);
      }
    }
  }

  /** The worker for all UDP sockets of a ServicePort, so that its bound of flows holds: each in its turn. */
  #homeOf({ commands }: WorkerSocket, preferred?: number): number | undefined {
    const [key] = commands.keys();
    const forwarder = key === undefined ? undefined : this.#forwarders.get(key);
    return forwarder && (forwarder.home ??= preferred ??
      [...this.#links.keys()][this.#homes++ % this.#links.size]);
  }

  /**
   * Finds out first whether the place is free: a shared socket would also open where a program of
   * the same user shares its own. Another socket of the workers may not be open yet.
   */
  #open(command: OpenCommand): void {
    const { engine } = this.forwarding;
    const { socket: key, place: { address: hostname, port } } = command;
    const isTcp = this.#forwarders.get(command.key)?.plan.protocol === "TCP";
    let socket = this.#sockets.get(key);
    if (socket === undefined) {
      const holder = this.#held.get(key);
      this.#held.delete(key);
      if (holder === undefined) {
        (isTcp ? engine.listenTcp({ hostname, port }) : engine.listenUdp({ hostname, port }))
          .close();
      }
      socket = { commands: new Map(), isTcp, home: isTcp ? undefined : holder };
      this.#sockets.set(key, socket);
    }
    const [first] = socket.commands.values();
    if (!command.at.names || !first?.at.names) socket.commands.clear();
    socket.commands.set(command.key, command);
    // A ServicePort that takes the place of another one takes its sockets where they are.
    const home = isTcp ? undefined : this.#homeOf(socket, socket.home);
    if (socket.home !== undefined && home !== socket.home) {
      this.#queueFor(socket, { op: "close", socket: key });
      this.#movedAt = this.forwarding.clock.now();
    }
    socket.home = home;
    this.#queueFor(socket, command);
  }

  /** Learns what workers have from before, once those that run are there. */
  async #takeOver(): Promise<void> {
    const asked = [...this.#links].map(async ([index, link]) => {
      const { affinity, sockets } = await link.ask({ kind: "held" });
      for (const socket of sockets) this.#held.set(socket, index);
      for (const [key, region] of affinity) {
        this.#heldAffinity.set(key, region);
        this.#pool.carrier.memory.keep(region);
      }
    });
    await this.#atMost(REFRESH_MS, Promise.allSettled(asked));
  }

  /** Queues a command for the workers that have a socket. */
  #queueFor({ isTcp, home }: WorkerSocket, command: Command): void {
    if (isTcp) this.#queueForAll(command);
    else if (home !== undefined) this.#links.get(home)?.queue([command]);
  }

  #queueForAll(command: Command): void {
    for (const link of this.#links.values()) link.queue([command]);
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
    for (const [index, link] of this.#links) if (index !== except) link.post(["tell", notice]);
  }

  /** Resolves to the answers of the workers that answer. */
  async #ask<Kind extends Question["kind"]>(
    question: Extract<Question, { readonly kind: Kind }>,
  ): Promise<readonly Answers[Kind][]> {
    const asked = this.#links.values().map((link) => link.ask<Kind>(question));
    const settled = await Promise.allSettled(asked);
    return settled.flatMap((each) => each.status === "fulfilled" ? [each.value] : []);
  }

  /** Resolves with work that never rejects, or after this time: a worker that hangs does not answer. */
  async #atMost<T>(ms: number, work: Promise<T>): Promise<T | undefined> {
    const done = new AbortController();
    const late = this.forwarding.clock.sleep(ms, done.signal).then(
      () => undefined,
      () => undefined,
    );
    const result = await Promise.race([work, late]);
    done.abort();
    return result;
  }

  async #reportAgain(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.refresh();
      for (const [index, link] of this.#links) if (link.hasHung()) this.#pool.giveUp(index);
      await this.forwarding.clock.sleep(REPORT_MS, signal).catch(() => {});
    }
  }

  /** Takes what a worker has counted. */
  #add(worker: number, link: WorkerLink, { counters, services, refused }: WorkerReport): void {
    if (this.#links.get(worker) !== link) return;
    const { counters: total, openFiles } = this.forwarding;
    for (const name of Object.keys(counters) as (keyof ForwardingCounters)[]) {
      total[name] += counters[name] - (link.counters?.[name] ?? 0);
    }
    link.counters = counters;
    for (const [key, figures] of services) this.#forwarders.get(key)?.count(worker, figures);
    for (const [use, count] of refused) openFiles.countRefused(use, count);
  }

  #onRefused(refused: readonly RefusedSocket[]): void {
    const { clock, log } = this.forwarding;
    for (const each of refused) {
      const socket = this.#sockets.get(each.socket);
      if (!socket || this.#failed.has(each.socket)) continue;
      if (each.code === "EADDRINUSE" && clock.now() - this.#movedAt < MOVE_MS) {
        clock.setTimer(RETRY_MS, () => this.#reopen(each.socket, socket));
        continue;
      }
      const [command] = socket.commands.values();
      const { socket: at } = command?.at ?? each;
      log.warn("A worker cannot open a socket", { socket: at, error: each.message });
      this.#failed.set(each.socket, each);
    }
  }

  #reopen(key: SocketKey, socket: WorkerSocket): void {
    if (this.#sockets.get(key) !== socket || this.#stop.signal.aborted) return;
    for (const command of socket.commands.values()) this.#queueFor(socket, command);
    void this.#flush();
  }
}

const COUNTED = [
  ...["bytesFromClients", "bytesToClients", "packetsFromClients", "packetsToClients"] as const,
  ...["opened", "open"] as const,
];

/** The forwarder of one ServicePort, as the main thread knows it: a worker that starts gets it again. */
class WorkerForwarder {
  unhealthy: ReadonlySet<EndpointKey> = new Set();
  plan: ServicePlan;
  /** The worker that has its sockets for UDP. */
  home: number | undefined;
  /** What each worker has counted, as of its last report. */
  readonly #figures = new Map<number, ForwarderFigures>();
  readonly #forwarding: Forwarding;
  readonly #memory: SharedMemory;
  /** Kept, so that it never changes between a row of its own and that of others. */
  #row: ServiceTraffic | undefined;
  /** Where the workers have its clients, if it has affinity. */
  #affinity: MemoryRegion | undefined;
  /** Picks nothing: it knows the slow starts, if there are any. */
  #picker: EndpointPicker | undefined;

  /** `affinity`: where the workers have its clients from before. */
  constructor(
    forwarding: Forwarding,
    memory: SharedMemory,
    plan: ServicePlan,
    affinity: MemoryRegion | undefined,
  ) {
    this.#forwarding = forwarding;
    this.#memory = memory;
    this.#affinity = affinity;
    this.plan = plan;
    this.update(plan);
  }

  get connections(): number {
    return this.#figures.values().reduce((sum, { connections }) => sum + connections, 0);
  }

  /** Takes what a worker has counted; `undefined` = it has ended, or the ServicePort was removed. */
  count(worker: number, figures: ForwarderFigures | undefined): void {
    const before = this.#figures.get(worker)?.traffic;
    if (figures) this.#figures.set(worker, figures);
    else this.#figures.delete(worker);
    const now = figures ? figures.traffic : before && { ...before, open: 0 };
    const { traffic } = this.#forwarding;
    const row = now && (this.#row ??= traffic?.enter(this.plan.name));
    for (const name of row ? COUNTED : []) row![name] += now![name] - (before?.[name] ?? 0);
  }

  update(plan: ServicePlan): void {
    this.plan = plan;
    if (plan.affinityTimeoutSeconds === undefined) this.free();
    else this.#affinity ??= this.#memory.allocate(AFFINITY_BYTES);
    if (plan.edge?.slowStartMs === undefined) this.#picker = undefined;
    else if (this.#picker) this.#picker.update(plan, this.#now);
    else {
      this.#picker = new EndpointPicker(plan);
      this.#picker.skip(this.unhealthy, this.#now);
    }
  }

  /** Gives back what the workers shared. */
  free(): void {
    if (this.#affinity) this.#memory.free(this.#affinity);
    this.#affinity = undefined;
  }

  skip(unhealthy: ReadonlySet<EndpointKey>): void {
    this.unhealthy = unhealthy;
    this.#picker?.skip(unhealthy, this.#now);
  }

  /** The commands by which a worker that knows nothing gets the forwarder. */
  *commands(): Generator<Command> {
    const { plan, plan: { key }, unhealthy } = this;
    // Forwarders read only the lists of the verdicts.
    const relayed = { ...plan, reachable: [], endpoints: [] };
    const ages = this.#picker?.agesAt(this.#now);
    const affinity = this.#affinity;
    yield { op: "forward", plan: relayed, ...(ages && { ages }), ...(affinity && { affinity }) };
    if (unhealthy.size > 0) yield { op: "skip", key, unhealthy };
  }

  get #now(): number {
    return this.#forwarding.clock.now();
  }
}
