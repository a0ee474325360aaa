/**
 * Workers, threads or processes, that run the same program and are replaced when they end.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import type { Clock, Timer } from "./clock.ts";
import type { SharedOpenFiles } from "./open_files.ts";
import type { SharedMemory } from "./shared_memory.ts";
import { whenAborted } from "./when_aborted.ts";

/** A thread; the part of `Worker` that is used. A process may look like one. */
export interface WorkerThread {
  onmessage: ((event: MessageEvent) => unknown) | null;
  onerror: ((event: ErrorEvent) => unknown) | null;
  postMessage(message: unknown): void;
  terminate(): void;
}

/** Starts a thread of this program. It posts {@linkcode READY} once it can be asked. */
export type SpawnWorker = (name: string, index: number) => WorkerThread;

/** What workers are. */
export interface WorkerCarrier {
  /** A thread that hangs cannot be ended; a process may have been there before this one. */
  readonly kind: "threads" | "processes";
  readonly spawn: SpawnWorker;
  /** Memory that all workers have. */
  readonly memory: SharedMemory;
  /** The time that is common to all workers. */
  now(): number;
  /** Lets those that run live on without this process. Absent = they cannot. */
  leave?(): void;
  /** All workers have ended. */
  close?(): void;
}

/** The first message of a thread. */
export const READY = "ready";

/** The topic of an error that a thread did not catch, and after which it continues. */
export const UNCAUGHT = "uncaught";

/** A message with the subscriber that it is for. */
export type PoolMessage = readonly [topic: string, message: unknown];

/** Uses the threads of a pool, each known by its index from 0. */
export interface PoolSubscriber {
  /** A thread has started, for the first time or in place of one that ended. */
  onStarted(index: number): void;
  /** A thread has ended, and all of its state with it. */
  onEnded(index: number, reason: Error): void;
  onMessage(index: number, message: unknown): void;
}

/** The threads of a run that forward connections, or why only the main thread does. */
export type RelayWorkers =
  | {
    readonly kind: "workers";
    readonly pool: WorkerPool;
    readonly openFiles: SharedOpenFiles;
    /** Appended to the summary. */
    readonly note?: string;
  }
  | { readonly kind: "refused"; readonly note: string };

interface PoolThread {
  thread: WorkerThread | undefined;
  /** `undefined` = it has not started yet, or has ended. */
  startedAt: number | undefined;
  /** Ends in succession, each soon after the start. */
  failures: number;
  /** Of the start, until it has started or failed, or of the next one. */
  timer: Timer | undefined;
}

/** A thread that takes longer to start has failed. It takes a second at most on a busy machine. */
const START_MS = 30_000;
/** The pause before the second restart in succession; it doubles up to the longest while others run. */
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 60_000;
/** A thread that ran for so long is restarted at once. */
const STEADY_MS = 60_000;

/** A fixed number of threads. */
export class WorkerPool implements Disposable {
  readonly count: number;
  readonly carrier: WorkerCarrier;
  /** Whether the workers live on without this process: nothing is told them any more. */
  isLeft = false;
  /** Threads that ended and were started again. */
  restarts = 0;
  readonly #threads: readonly PoolThread[];
  readonly #subscribers = new Map<string, PoolSubscriber>();
  readonly #hung = Promise.withResolvers<number>();
  #starting: PromiseWithResolvers<void> | undefined;
  #stopped = false;

  constructor(
    private readonly edges: {
      readonly clock: Clock;
      readonly logger: Logger;
    },
    carrier: WorkerCarrier,
    { count }: { readonly count: number },
  ) {
    this.count = count;
    this.carrier = carrier;
    this.#threads = Array.from({ length: count }, () => ({
      ...{ thread: undefined, startedAt: undefined, failures: 0, timer: undefined },
    }));
  }

  /** The indexes of the threads that run. */
  get running(): readonly number[] {
    return this.#threads.flatMap(({ startedAt }, index) => startedAt === undefined ? [] : [index]);
  }

  isRunning(index: number): boolean {
    return this.#threads[index]?.startedAt !== undefined;
  }

  /** Passes messages of a topic, and the starts and ends of threads, to a subscriber. */
  subscribe(topic: string, subscriber: PoolSubscriber): void {
    this.#subscribers.set(topic, subscriber);
    for (const index of this.running) subscriber.onStarted(index);
  }

  /** Starts the threads, once. Resolves when each has started or failed, or the run is to end. */
  async start(): Promise<void> {
    if (this.#starting === undefined) {
      this.#starting = Promise.withResolvers();
      for (const index of this.#threads.keys()) this.#spawn(index);
    }
    await this.#starting.promise;
  }

  post(index: number, topic: string, message: unknown): void {
    this.#threads[index]?.thread?.postMessage([topic, message] satisfies PoolMessage);
  }

  /** Ends a thread that no longer works; another one takes its place. */
  end(index: number, reason: string): void {
    const each = this.#threads[index];
    if (each?.thread === undefined || this.#stopped) return;
    const { clock, logger } = this.edges;
    const ranMs = each.startedAt === undefined ? 0 : clock.now() - each.startedAt;
    const wasRunning = each.startedAt !== undefined;
    each.failures = ranMs >= STEADY_MS ? 1 : each.failures + 1;
    this.#drop(each);
    const restartInMs = this.#pauseOf(each);
    this.restarts++;
    logger.error("A worker ended and is started again; its connections are lost", {
      ...{ worker: index + 1, reason, restartInMs },
    });
    each.timer = clock.setTimer(restartInMs, () => this.#spawn(index));
    if (wasRunning) {
      for (const each of this.#subscribers.values()) each.onEnded(index, new Error(reason));
    }
    this.#settle();
  }

  /**
   * Ends a worker that hangs. With a thread, the run ends, too: Deno cannot interrupt one (2.9), whose
   * sockets take their share of the connections for as long as the process lives.
   */
  giveUp(index: number): void {
    this.end(index, "it does not answer");
    if (this.carrier.kind === "threads") this.#hung.resolve(index);
  }

  /** Resolves when the signal is aborted. Rejects when a thread hangs. */
  async run(signal: AbortSignal): Promise<void> {
    const index = await Promise.race([this.#hung.promise, whenAborted(signal)]);
    // Otherwise the end of a run would wait for a thread that does not start.
    if (index === undefined) return this.#starting?.resolve();
    throw new Error(
      `Cannot continue: worker ${index + 1} hangs, and only a restart closes its sockets`,
    );
  }

  /** Has the workers that run live on when this process ends, if they can; returns whether they do. */
  leave(): boolean {
    if (!this.carrier.leave) return false;
    this.#stopped = true;
    this.isLeft = true;
    this.carrier.leave();
    return true;
  }

  /** Ends all threads. */
  [Symbol.dispose](): void {
    if (this.isLeft) return;
    this.#stopped = true;
    for (const each of this.#threads) this.#drop(each);
    this.carrier.close?.();
    this.#starting?.resolve();
  }

  #spawn(index: number): void {
    const each = this.#threads[index]!;
    if (this.#stopped) return;
    const thread = this.carrier.spawn(`kube-relay worker ${index + 1}`, index);
    each.thread = thread;
    each.timer = this.edges.clock.setTimer(
      START_MS,
      () => this.end(index, `it did not start within ${START_MS / 1000} s`),
    );
    thread.onmessage = ({ data }) => {
      if (each.thread !== thread) return;
      if (data === READY) return this.#onStarted(index);
      const [topic, message] = data as PoolMessage;
      // It is logged and counted as one of this thread.
      if (topic === UNCAUGHT) return reportError(message);
      this.#subscribers.get(topic)?.onMessage(index, message);
    };
    thread.onerror = (event) => {
      // Otherwise it ends this thread as well.
      event.preventDefault();
      if (each.thread === thread) this.end(index, event.message);
    };
  }

  /** The pause before the restart of a thread that has ended. */
  #pauseOf({ failures }: PoolThread): number {
    if (failures === 1) return 0;
    // Without any thread there is no service.
    const longest = this.running.length > 0 ? LONGEST_PAUSE_MS : FIRST_PAUSE_MS;
    return Math.min(FIRST_PAUSE_MS * 2 ** (failures - 2), longest);
  }

  #onStarted(index: number): void {
    const each = this.#threads[index]!;
    each.timer?.cancel();
    each.startedAt = this.edges.clock.now();
    for (const each of this.#subscribers.values()) each.onStarted(index);
    this.#settle();
  }

  /** Each thread has started, or failed at least once. */
  #settle(): void {
    const isSettled = this.#threads.every(({ startedAt, failures }) =>
      startedAt !== undefined || failures > 0
    );
    if (isSettled) this.#starting?.resolve();
  }

  #drop(each: PoolThread): void {
    const { thread } = each;
    each.timer?.cancel();
    each.thread = undefined;
    each.startedAt = undefined;
    if (thread === undefined) return;
    // What it still posts is about state that no longer exists.
    thread.onmessage = null;
    thread.terminate();
  }
}
