import type { IpAddress, IpFamily } from "../../../lib/net/ip_address.ts";
import { messageOf } from "../../../lib/log/message_of.ts";
import type { SharedOpenFiles } from "../../../lib/os/open_files.ts";
import type { ChannelMessage } from "../../../lib/os/worker_channel.ts";
import type { PoolSubscriber, WorkerPool } from "../../../lib/os/worker_pool.ts";
import type { ConnectionJudge, JudgeUpdate } from "../../../lib/policy/connection_judge.ts";
import type { SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import type { LoopPart } from "../endpoint_loops.ts";
import type { FailedSocket, Forwarders, ServiceForwarder, SocketUse } from "../forwarders.ts";
import type { Forwarding, ForwardingOptions } from "../forwarding.ts";
import { createAnswer, encodeAdmission } from "./admission_answer.ts";
import { createSharedSockets, forgetSocketsOf } from "./shared_own_sockets.ts";
import type { Decider } from "./decider.ts";
import { WorkerCounts } from "./worker_counts.ts";
import { WorkerLink } from "./worker_link.ts";
import type {
  ClientFacts,
  Command,
  MainSide,
  Place,
  PublishedFrontends,
  RefusedSocket,
  WorkerSettings,
  WorkerSide,
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

type CountedKind = "admit now" | "enter" | "leave" | "release";

/** Interval of reports, so that an ending worker takes few counts with it and a hung one is noticed. */
const REPORT_MS = 1000;
/** Longest time for which a tool waits for reports. */
const REFRESH_MS = 2000;

/** Forwards in the workers of a pool. Decides what needs a view over all of them. */
export class WorkerForwarders implements Forwarders, PoolSubscriber {
  readonly threads: number;
  readonly #forwarding: Forwarding;
  readonly #pool: WorkerPool;
  readonly #settings: Omit<WorkerSettings, "answers" | "index" | "judge">;
  readonly #judge: ConnectionJudge | undefined;
  readonly #counts: WorkerCounts;
  readonly #links = new Map<number, WorkerLink>();
  readonly #answers = new Map<number, Int32Array>();
  readonly #forwarders = new Map<number, WorkerForwarder>();
  /** Removed ones that may have connections which a limit of their Service still counts. */
  readonly #removed = new Map<number, WorkerForwarder>();
  readonly #sockets = new Map<number, WorkerSocket>();
  /** ServicePorts for UDP of each worker. */
  readonly #udpUses = new Map<number, number>();
  /** Frontends for UDP, by which a datagram of this process is recognized. */
  readonly #frontends = new Map<string, PublishedFrontends>();
  /** Forwarders whose plan is to be sent. */
  readonly #touched = new Set<WorkerForwarder>();
  /** Sockets to open once another worker has closed them. */
  readonly #moving = new Set<WorkerSocket>();
  readonly #failed: FailedSocket[] = [];
  readonly #stop = new AbortController();
  #facts: ClientFacts | undefined;
  #lastNumber = 0;

  constructor(
    { forwarding, pool, openFiles }: WorkerForwardersDependencies,
    { family, judge, ...options }: WorkerForwardersOptions,
  ) {
    this.threads = pool.count;
    this.#forwarding = forwarding;
    this.#pool = pool;
    this.#judge = judge;
    this.#settings = {
      ...{ family, openFiles, sockets: createSharedSockets() },
      countsTraffic: forwarding.traffic !== undefined,
      options: { ...options, ...dividedBounds(forwarding, pool.count) },
    };
    this.#counts = new WorkerCounts(forwarding, this.#forwarders);
  }

  get summary(): string {
    const { count, restarts, running } = this.#pool;
    const missing = running.length < count ? `, ${running.length} of which run` : "";
    return `; ${count} workers forward${missing}${restarts > 0 ? `, restarted ${restarts}x` : ""}`;
  }

  async start(): Promise<void> {
    this.#forwarding.watches.onAsk = (id, query) => {
      for (const link of this.#links.values()) link.tell({ kind: "watch", id, query });
    };
    this.#pool.subscribe(this.#settings.family, this);
    await this.#pool.start();
    void this.#report();
  }

  create(plan: ServicePlan): WorkerForwarder {
    const number = ++this.#lastNumber;
    const context = {
      forwarding: this.#forwarding,
      end: (forwarder: WorkerForwarder) =>
        this.#send(forwarder, { op: "remove", forwarder: forwarder.number, ends: true }),
      skip: (forwarder: WorkerForwarder) => this.#skip(forwarder),
      touch: (forwarder: WorkerForwarder) => void this.#touched.add(forwarder),
      remembered: (forwarder: WorkerForwarder, client: string) =>
        this.#askOwner(forwarder, { kind: "remembered", forwarder: forwarder.number, client }),
    };
    const forwarder = new WorkerForwarder(context, { number, plan });
    if (!forwarder.isTcp) this.#place(forwarder, this.#leastUsed());
    this.#forwarders.set(number, forwarder);
    this.#touched.add(forwarder);
    return forwarder;
  }

  remove(removed: ServiceForwarder): void {
    const forwarder = removed as WorkerForwarder;
    this.#touched.delete(forwarder);
    this.#forwarders.delete(forwarder.number);
    const { number, isTcp, worker } = forwarder;
    if (isTcp || worker !== undefined) {
      this.#queue(worker, { op: "remove", forwarder: number, ends: !isTcp });
    }
    this.#place(forwarder, undefined);
    forwarder.decider?.remove();
    if (forwarder.decider && !forwarder.decider.isIdle) this.#removed.set(number, forwarder);
  }

  /**
   * Finds out first whether the place is free: a shared socket would also open where a program of
   * the same user shares its own.
   */
  open(place: Place, { at, forwarder }: SocketUse): WorkerSocket {
    const use = { at, forwarder: forwarder as WorkerForwarder };
    const { network } = this.#forwarding;
    const address = { hostname: place.address, port: place.port };
    (use.forwarder.isTcp ? network.listenTcp(address) : network.listenUdp(address)).close();
    const number = ++this.#lastNumber;
    const onClose = (socket: WorkerSocket) => this.#close(socket);
    const socket = new WorkerSocket({ number, place, use, onClose });
    this.#sockets.set(number, socket);
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
    if (worker !== undefined) this.#queue(worker, { op: "close", socket: assigned.number });
    this.#moving.add(assigned);
  }

  share({ interfaceAddresses, localTraffic }: SharedPlan): void {
    this.#facts = { interfaceAddresses, localTraffic };
    this.#queue(undefined, { op: "share", shared: this.#facts });
  }

  replaceFrontends(
    { key, protocol }: Pick<ServicePlan, "key" | "protocol">,
    { frontends }: LoopPart,
  ): void {
    if (protocol !== "UDP") return;
    const published = { key, protocol, frontends };
    if (frontends.length > 0) this.#frontends.set(key, published);
    else this.#frontends.delete(key);
    this.#queue(undefined, { op: "frontends", ...published });
  }

  async settle(): Promise<readonly FailedSocket[]> {
    for (const forwarder of this.#touched) this.#sendPlan(forwarder);
    await this.#flush();
    for (const socket of this.#moving) this.#send(socket.use.forwarder, socket.command("open"));
    this.#moving.clear();
    // A worker may have started or ended meanwhile.
    while (this.#links.values().some(({ isBusy }) => isBusy)) await this.#flush();
    if (this.#links.size === 0) throw new Error("Cannot forward: no worker runs");
    return this.#failed.splice(0);
  }

  async refresh(): Promise<void> {
    const { clock } = this.#forwarding;
    const done = new AbortController();
    const reported = [...this.#links].map(async ([index, link]) => {
      this.#counts.add(index, await link.ask({ kind: "report" }));
    });
    const late = clock.sleep(REFRESH_MS, done.signal).catch(() => {});
    await Promise.race([Promise.allSettled(reported), late]);
    done.abort();
  }

  async follow(update: JudgeUpdate): Promise<void> {
    await this.#askAll({ kind: "follow", update });
  }

  async recheck(addresses: readonly IpAddress[]): Promise<number> {
    const counts = await this.#askAll({ kind: "recheck", addresses });
    return counts.reduce((sum, count) => sum + count, 0);
  }

  async drain(timeoutMs: number): Promise<void> {
    await this.#flush();
    await this.#askAll({ kind: "drain", timeoutMs }, { withinMs: 2 * timeoutMs + REFRESH_MS });
    await this.refresh();
  }

  async close(): Promise<void> {
    await this.#flush();
    await this.#askAll({ kind: "close" });
    this.#stop.abort();
    for (const link of this.#links.values()) link.close(new Error("closed"));
    this.#links.clear();
  }

  onStarted(index: number): void {
    const link = new WorkerLink({
      clock: this.#forwarding.clock,
      post: (message) => this.#pool.post(index, this.#settings.family, message),
      handler: {
        answer: (question) => this.#answer(index, question),
        hear: (notice) => this.#hear(index, notice),
      },
      onRefused: (refused) => this.#onRefused(refused),
      onHang: () => this.#pool.end(index, "it does not answer"),
    });
    this.#links.set(index, link);
    const judge = this.#judge?.snapshot();
    const answers = createAnswer();
    this.#answers.set(index, new Int32Array(answers));
    const settings = { ...this.#settings, index, answers, ...(judge && { judge }) };
    link.ask({ kind: "start", settings }).catch((error) => this.#onFailure(index, error));
    for (const forwarder of this.#forwarders.values()) {
      if (!forwarder.isTcp && forwarder.worker === undefined) this.#place(forwarder, index);
    }
    link.queue(...this.#everything(index));
    void this.#flush();
  }

  onEnded(index: number, reason: Error): void {
    this.#links.get(index)?.close(reason);
    this.#links.delete(index);
    this.#counts.forget(index);
    this.#forwarding.openFiles.forgetThread(index);
    forgetSocketsOf(this.#settings.sockets, index);
    for (const removed of this.#removed.values()) removed.forget(index);
    for (const forwarder of this.#forwarders.values()) {
      forwarder.forget(index);
      if (forwarder.worker !== index) continue;
      this.#place(forwarder, this.#leastUsed());
      if (forwarder.worker !== undefined) this.#queue(forwarder.worker, ...forwarder.commands());
    }
    for (const socket of this.#sockets.values()) {
      if (socket.worker !== index) continue;
      socket.worker = socket.use.forwarder.worker;
      if (socket.worker !== undefined) this.#queue(socket.worker, socket.command("open"));
    }
    void this.#flush();
  }

  onMessage(index: number, message: ChannelMessage): void {
    this.#links.get(index)?.receive(message);
  }

  /** What a worker that knows nothing has to know. */
  *#everything(index: number): Generator<Command> {
    if (this.#facts) yield { op: "share", shared: this.#facts };
    for (const published of this.#frontends.values()) yield { op: "frontends", ...published };
    for (const forwarder of this.#forwarders.values()) {
      if (forwarder.isTcp || forwarder.worker === index) yield* forwarder.commands();
    }
    for (const socket of this.#sockets.values()) {
      const { forwarder } = socket.use;
      socket.worker = forwarder.worker;
      if (forwarder.isTcp || forwarder.worker === index) yield socket.command("open");
    }
  }

  #answer(index: number, question: WorkerSide["question"]): unknown {
    const decider = this.#forwarders.get(question.forwarder)?.decider;
    if (question.kind === "admit") return decider?.admit(index, question.client);
    const { client, exclude, verdict } = question;
    return decider?.pick(index, { client, verdict, ...(exclude && { exclude }) });
  }

  #hear(index: number, notice: WorkerSide["notice"]): void {
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
        for (const [other, link] of this.#links) {
          if (other !== index) link.tell({ kind: "failing", forwarder, endpoint });
        }
        return;
      }
      default:
        return this.#count(index, notice);
    }
  }

  #count(
    index: number,
    notice: Extract<WorkerSide["notice"], { readonly kind: CountedKind }>,
  ): void {
    const { forwarder: number } = notice;
    const decider = (this.#forwarders.get(number) ?? this.#removed.get(number))?.decider;
    this.#countFor(decider, index, notice);
    if (decider?.isIdle) this.#removed.delete(number);
  }

  #countFor(
    decider: Decider | undefined,
    index: number,
    notice: Extract<WorkerSide["notice"], { readonly kind: CountedKind }>,
  ): void {
    switch (notice.kind) {
      case "release":
        return decider?.release(index, notice.endpoint);
      case "enter":
        return decider?.enter(index);
      case "leave":
        return decider?.leave(index, notice.client);
      case "admit now":
        return encodeAdmission(this.#answers.get(index)!, decider?.admit(index, notice.client));
    }
  }

  /** The worker that has the fewest ServicePorts for UDP. */
  #leastUsed(): number | undefined {
    const uses = (index: number) => this.#udpUses.get(index) ?? 0;
    const [least] = [...this.#links.keys()].sort((left, right) => uses(left) - uses(right));
    return least;
  }

  /** Gives a ServicePort for UDP to a worker, or to none while none runs. */
  #place(forwarder: WorkerForwarder, worker: number | undefined): void {
    const { worker: before } = forwarder;
    if (before !== undefined) this.#udpUses.set(before, this.#udpUses.get(before)! - 1);
    if (worker !== undefined) this.#udpUses.set(worker, (this.#udpUses.get(worker) ?? 0) + 1);
    forwarder.worker = worker;
  }

  #close(socket: WorkerSocket): void {
    this.#sockets.delete(socket.number);
    this.#moving.delete(socket);
    const { number, use: { forwarder }, worker } = socket;
    if (forwarder.isTcp || worker !== undefined) {
      this.#queue(worker, { op: "close", socket: number });
    }
  }

  /** Health changes at any time, not only in a sync. */
  #skip(forwarder: WorkerForwarder): void {
    if (!this.#forwarders.has(forwarder.number)) return;
    const { number, unhealthy } = forwarder;
    this.#send(forwarder, { op: "skip", forwarder: number, unhealthy });
    void this.#flush();
  }

  #sendPlan(forwarder: WorkerForwarder): void {
    this.#touched.delete(forwarder);
    if (forwarder.isTcp || forwarder.worker !== undefined) {
      this.#queue(forwarder.worker, ...forwarder.commands());
    }
  }

  #send(forwarder: WorkerForwarder, command: Command): void {
    if (this.#touched.has(forwarder)) this.#sendPlan(forwarder);
    if (forwarder.isTcp || forwarder.worker !== undefined) this.#queue(forwarder.worker, command);
  }

  /** Queues commands for one worker, or for all. */
  #queue(index: number | undefined, ...commands: readonly Command[]): void {
    if (index !== undefined) this.#links.get(index)?.queue(...commands);
    else for (const link of this.#links.values()) link.queue(...commands);
  }

  async #flush(): Promise<void> {
    await Promise.all(
      [...this.#links].map(([index, link]) =>
        link.flush().catch((error) => this.#onFailure(index, error))
      ),
    );
  }

  /** A worker that has ended fails as well; it is replaced already. */
  #onFailure(index: number, error: unknown): void {
    if (this.#links.has(index) && this.#pool.isRunning(index)) {
      this.#pool.end(index, messageOf(error));
    }
  }

  #onRefused(refused: readonly RefusedSocket[]): void {
    for (const { socket: number, message, code } of refused) {
      const socket = this.#sockets.get(number);
      if (!socket || this.#failed.some((each) => each.socket === socket)) continue;
      this.#failed.push({ socket, error: Object.assign(new Error(message), { code }) });
    }
  }

  async #askAll<Kind extends MainSide["question"]["kind"]>(
    question: Extract<MainSide["question"], { readonly kind: Kind }>,
    options: { readonly withinMs?: number } = {},
  ): Promise<readonly MainSide["answers"][Kind][]> {
    const asked = [...this.#links.values()].map((link) => link.ask<Kind>(question, options));
    const settled = await Promise.allSettled(asked);
    return settled.flatMap((each) => each.status === "fulfilled" ? [each.value] : []);
  }

  async #askOwner<Kind extends MainSide["question"]["kind"]>(
    { worker }: WorkerForwarder,
    question: Extract<MainSide["question"], { readonly kind: Kind }>,
  ): Promise<MainSide["answers"][Kind] | undefined> {
    return worker === undefined ? undefined : await this.#links.get(worker)?.ask<Kind>(question);
  }

  async #report(): Promise<void> {
    const { clock } = this.#forwarding;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.refresh();
      await clock.sleep(REPORT_MS, signal).catch(() => {});
    }
  }
}

/** Each worker has its part of the bound of connections; a ServicePort for UDP is in one worker. */
function dividedBounds(
  { options: { maxConnectionsPerService } }: Forwarding,
  count: number,
): Pick<ForwardingOptions, "maxConnectionsPerService"> {
  return { maxConnectionsPerService: Math.max(1, Math.floor(maxConnectionsPerService / count)) };
}
