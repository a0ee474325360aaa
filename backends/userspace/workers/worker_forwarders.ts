import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import type { SharedOpenFiles } from "../../../lib/os/open_files.ts";
import type { PoolSubscriber, WorkerPool } from "../../../lib/os/worker_pool.ts";
import type { ConnectionJudge } from "../../../lib/policy/connection_judge.ts";
import type { JudgeUpdate } from "../../../lib/policy/judge_update.ts";
import type { SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { LoopPart } from "../endpoint_loops.ts";
import type { FailedSocket, Forwarders, ServiceForwarder, SocketUse } from "../forwarders.ts";
import type { Forwarding, ForwardingOptions } from "../forwarding.ts";
import { createCountMemory, SharedCounts } from "../shared_counts.ts";
import { createSharedSockets, OwnSockets } from "../own_sockets.ts";
import { WorkerCounts } from "./worker_counts.ts";
import { WorkerLink } from "./worker_link.ts";
import { WorkerLinks } from "./worker_links.ts";
import type {
  Command,
  Place,
  RefusedSocket,
  WorkerMessage,
  WorkerNotice,
  WorkerSettings,
} from "./worker_protocol.ts";
import { WorkerState } from "./worker_state.ts";
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
  readonly #counts: WorkerCounts;
  readonly #links: WorkerLinks;
  readonly #state: WorkerState;
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
    this.#links = new WorkerLinks(pool);
    this.#judge = judge;
    this.#settings = {
      ...{ family, openFiles, sockets: createSharedSockets() },
      counts: createCountMemory(openFiles.limit, pool.count),
      countsTraffic: forwarding.traffic !== undefined,
      isJudged: judge !== undefined,
      options: { ...options, ...dividedBounds(forwarding, pool.count) },
    };
    this.#state = new WorkerState(forwarding.clock);
    this.#counts = new WorkerCounts(forwarding, {
      ...{ forwarders: this.#state.forwarders, links: this.#links },
    });
  }

  get summary(): string {
    const { count, restarts, running } = this.#pool;
    const missing = running.length < count ? `, ${running.length} of which run` : "";
    return `; ${count} workers forward${missing}${restarts > 0 ? `, restarted ${restarts}x` : ""}`;
  }

  async start(): Promise<void> {
    this.#forwarding.watches.onAsk = (id, query) => this.#links.tell({ kind: "watch", id, query });
    this.#pool.subscribe(this.#settings.family, this);
    await this.#pool.start();
    void this.#counts.run(this.#stop.signal);
  }

  create(plan: ServicePlan): WorkerForwarder {
    const number = this.#state.nextNumber();
    const context = {
      clock: this.#forwarding.clock,
      end: (forwarder: WorkerForwarder) =>
        this.#send(forwarder, { op: "remove", forwarder: forwarder.number, ends: true }),
      skip: (forwarder: WorkerForwarder) => this.#skip(forwarder),
      touch: (forwarder: WorkerForwarder) => void this.#touched.add(forwarder),
    };
    const forwarder = new WorkerForwarder(context, { number, plan });
    if (!forwarder.isTcp) this.#state.place(forwarder, this.#links.indexes);
    this.#state.forwarders.set(number, forwarder);
    this.#touched.add(forwarder);
    return forwarder;
  }

  remove(removed: ServiceForwarder): void {
    const forwarder = removed as WorkerForwarder;
    this.#touched.delete(forwarder);
    this.#state.forwarders.delete(forwarder.number);
    const { number, isTcp, worker } = forwarder;
    if (isTcp || worker !== undefined) {
      this.#links.queue(worker, { op: "remove", forwarder: number, ends: !isTcp });
    }
    this.#state.place(forwarder, []);
    this.#counts.leave(forwarder.plan.name);
  }

  /**
   * Finds out first whether the place is free: a shared socket would also open where a program of
   * the same user shares its own. Another socket of the workers may not be open yet.
   */
  open(place: Place, { at, forwarder }: SocketUse): WorkerSocket {
    const use = { at, forwarder: forwarder as WorkerForwarder };
    const { network } = this.#forwarding;
    const address = { hostname: place.address, port: place.port };
    this.#state.checkPlace(place, use.forwarder);
    (use.forwarder.isTcp ? network.listenTcp(address) : network.listenUdp(address)).close();
    const number = this.#state.nextNumber();
    const onClose = (socket: WorkerSocket) => this.#close(socket);
    const socket = new WorkerSocket({ number, place, use, onClose });
    this.#state.add(socket);
    this.#send(use.forwarder, socket.command("open"));
    return socket;
  }

  assign(assigned: WorkerSocket, { at, forwarder }: SocketUse): void {
    const use = { at, forwarder: forwarder as WorkerForwarder };
    const { worker } = assigned;
    assigned.use = use;
    assigned.worker = use.forwarder.worker;
    if (worker === assigned.worker) {
      return this.#send(use.forwarder, assigned.command("assign"));
    }
    if (worker !== undefined) this.#links.queue(worker, { op: "close", socket: assigned.number });
    this.#moving.add(assigned);
  }

  share({ interfaceAddresses, localTraffic }: SharedPlan): void {
    this.#state.facts = { interfaceAddresses, localTraffic };
    this.#links.queue(undefined, { op: "share", shared: this.#state.facts });
  }

  replaceFrontends(
    { key, protocol }: Pick<ServicePlan, "key" | "protocol">,
    { frontends }: LoopPart,
  ): void {
    if (protocol !== "UDP") return;
    const published = { key, protocol, frontends };
    if (frontends.length > 0) this.#state.frontends.set(key, published);
    else this.#state.frontends.delete(key);
    this.#links.queue(undefined, { op: "frontends", ...published });
  }

  async settle(): Promise<readonly FailedSocket[]> {
    for (const forwarder of this.#touched) this.#sendPlan(forwarder);
    await this.#links.flush();
    for (const socket of this.#moving) this.#send(socket.use.forwarder, socket.command("open"));
    this.#moving.clear();
    // A worker may have started or ended meanwhile.
    while (this.#links.areBusy) await this.#links.flush();
    if (this.#links.indexes.length === 0) throw new Error("Cannot forward: no worker runs");
    return this.#failed.splice(0);
  }

  refresh(): Promise<void> {
    return this.#counts.refresh();
  }

  follow(update: JudgeUpdate): Promise<void> {
    return this.#links.follow(update);
  }

  async recheck(addresses: readonly IpAddress[]): Promise<number> {
    const counts = await this.#links.ask({ kind: "recheck", addresses });
    return counts.reduce((sum, [, count]) => sum + count, 0);
  }

  async drain(timeoutMs: number): Promise<void> {
    await this.#links.flush();
    await this.#links.ask({ kind: "drain", timeoutMs }, {
      withinMs: 2 * timeoutMs + DRAIN_GRACE_MS,
    });
    await this.refresh();
  }

  async close(): Promise<void> {
    await this.#links.flush();
    await this.#links.ask({ kind: "close" });
    this.#stop.abort();
    for (const index of this.#links.indexes) this.#links.delete(index, new Error("closed"));
  }

  onStarted(index: number): void {
    const link = new WorkerLink({
      clock: this.#forwarding.clock,
      post: (message) => this.#pool.post(index, this.#settings.family, message),
      hear: (notice) => this.#hear(index, notice),
      onRefused: (refused) => this.#onRefused(refused),
      onHang: () => this.#pool.giveUp(index),
    });
    this.#links.add(index, link);
    const fail = (error: unknown) => this.#links.fail(index, error);
    const { now } = this.#forwarding.clock;
    link.ask({ kind: "start", settings: { ...this.#settings, index, now: now() } }).catch(fail);
    const judge = this.#judge;
    judge?.turns.run(() => link.follow(judge.snapshot())).then(({ done }) => done).catch(fail);
    link.queue(this.#state.commandsFor(index));
    void this.#links.flush();
  }

  onEnded(index: number, reason: Error): void {
    this.#links.delete(index, reason);
    for (const { counts } of this.#state.forwarders.values()) counts.delete(index);
    this.#counts.forget(index);
    this.#forwarding.openFiles.forgetThread(index);
    new OwnSockets(this.#settings.sockets, index).forgetOwn();
    new SharedCounts(this.#settings.counts, index).forgetOwn();
    for (const [worker, command] of this.#state.moveFrom(index, this.#links.indexes)) {
      this.#links.queue(worker, command);
    }
    void this.#links.flush();
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
        const { forwarder, outcome: { endpoint, failure } } = notice;
        outcomes?.observe(notice.outcome);
        if (failure === undefined) return;
        return this.#links.tell({ kind: "failing", forwarder, endpoint }, { except: index });
      }
    }
  }

  #close(socket: WorkerSocket): void {
    this.#state.delete(socket);
    this.#moving.delete(socket);
    const { number, use: { forwarder }, worker } = socket;
    if (forwarder.isTcp || worker !== undefined) {
      this.#links.queue(worker, { op: "close", socket: number });
    }
  }

  /** Health changes at any time, not only in a sync. */
  #skip(forwarder: WorkerForwarder): void {
    if (!this.#state.forwarders.has(forwarder.number)) return;
    const { number, unhealthy } = forwarder;
    this.#send(forwarder, { op: "skip", forwarder: number, unhealthy });
    void this.#links.flush();
  }

  #sendPlan(forwarder: WorkerForwarder): void {
    this.#touched.delete(forwarder);
    if (forwarder.isTcp || forwarder.worker !== undefined) {
      this.#links.queue(forwarder.worker, ...forwarder.commands());
    }
  }

  #send(forwarder: WorkerForwarder, command: Command): void {
    if (this.#touched.has(forwarder)) this.#sendPlan(forwarder);
    if (forwarder.isTcp || forwarder.worker !== undefined) {
      this.#links.queue(forwarder.worker, command);
    }
  }

  #onRefused(refused: readonly RefusedSocket[]): void {
    const { clock, log } = this.#forwarding;
    for (const { socket: number, message, code } of refused) {
      const socket = this.#state.sockets.get(number);
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
    if (this.#state.sockets.get(socket.number) !== socket || this.#stop.signal.aborted) return;
    this.#send(socket.use.forwarder, socket.command("open"));
    void this.#links.flush();
  }
}

/** Each worker has its part of the bound of connections; a ServicePort for UDP is in one worker. */
function dividedBounds(
  { options: { maxConnectionsPerService } }: Forwarding,
  count: number,
): Pick<ForwardingOptions, "maxConnectionsPerService"> {
  return { maxConnectionsPerService: Math.max(1, Math.floor(maxConnectionsPerService / count)) };
}
