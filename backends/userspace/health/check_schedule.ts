import type { Clock, Timer } from "../../../lib/os/clock.ts";
import type { OpenFiles } from "../../../lib/os/open_files.ts";
import { DueQueue } from "./due_queue.ts";
import type { HealthCheck } from "./health_check.ts";

interface CheckScheduleContext {
  readonly clock: Clock;
  readonly openFiles: Pick<OpenFiles, "takeCheck" | "giveCheck">;
  /** From 0 (included) to 1. */
  readonly random: () => number;
}

/** Makes one check, and takes its result. Does not reject. */
type MakeCheck<User> = (check: HealthCheck<User>, signal: AbortSignal) => Promise<void>;

/** Successive multiples of it modulo 1 never come close to each other, so no two checks start together. */
const GOLDEN_RATIO = (Math.sqrt(5) - 1) / 2;
/** Part of the interval by which it varies, so that checks of many nodes do not fall into step. */
const JITTER = 0.1;
/** Checks that start in one period: no more than 500 a second. */
const MOST_STARTS = 10;
const PERIOD_MS = 20;
/** Interval of attempts to start checks that wait for sockets, if no other one ends here. */
const RETRY_MS = 100;

/**
 * Starts each check once in its interval, at a bounded rate and with a bounded number in progress. First
 * checks are spread over the interval. Namespaces take turns if checks have to wait, so that hanging
 * endpoints of one delay its own checks most.
 */
export class CheckSchedule<User> {
  readonly #context: CheckScheduleContext;
  readonly #make: MakeCheck<User>;
  readonly #queue: DueQueue<HealthCheck<User>>;
  /** Checks that are due, by namespace. */
  readonly #waiting = new Map<string, Set<HealthCheck<User>>>();
  readonly #running = new Set<HealthCheck<User>>();
  #spread: number;
  /** Starts in this period. */
  #starts = 0;
  /** Ends the period, or tries again. */
  #next: Timer | undefined;
  #isClosed = false;

  constructor(context: CheckScheduleContext, make: MakeCheck<User>) {
    this.#context = context;
    this.#make = make;
    this.#spread = context.random();
    this.#queue = new DueQueue(context.clock, (check) => this.#onDue(check));
  }

  add(check: HealthCheck<User>): void {
    this.#spread = (this.#spread + GOLDEN_RATIO) % 1;
    const { intervalMs } = check.target;
    this.#queue.set(check, this.#context.clock.now() + this.#spread * intervalMs);
  }

  /** Takes out a check. One in progress ends without a result. */
  delete(check: HealthCheck<User>): void {
    check.isRemoved = true;
    // The time-out of a check in progress stays.
    if (check.running) return;
    this.#queue.delete(check);
    const { namespace } = check.target;
    const waiting = this.#waiting.get(namespace);
    waiting?.delete(check);
    if (waiting?.size === 0) this.#waiting.delete(namespace);
  }

  /** Ends all checks, and starts no others. */
  close(): void {
    this.#isClosed = true;
    this.#queue.close();
    this.#next?.cancel();
    for (const { running } of this.#running) running?.abort();
  }

  #onDue(check: HealthCheck<User>): void {
    if (check.running === undefined) {
      this.#waiting.getOrInsertComputed(check.target.namespace, () => new Set()).add(check);
      return this.#startWaiting();
    }
    // As in TcpDialer: an abort in the turn in which the connection is reported would lose its
    // file descriptor for good.
    if (check.isLate) return check.running.abort();
    check.isLate = true;
    this.#queue.set(check, this.#context.clock.now());
  }

  #startWaiting(): void {
    const { clock, openFiles } = this.#context;
    for (const [namespace, checks] of this.#waiting) {
      if (this.#isClosed || this.#starts === MOST_STARTS) break;
      if (!openFiles.takeCheck(namespace)) continue;
      const [check] = checks;
      // The namespace goes to the end of the line.
      this.#waiting.delete(namespace);
      checks.delete(check!);
      if (checks.size > 0) this.#waiting.set(namespace, checks);
      this.#starts++;
      void this.#run(check!);
    }
    const isRetry = this.#waiting.size > 0 && this.#running.size === 0;
    if (this.#isClosed || (this.#starts === 0 && !isRetry)) return;
    this.#next ??= clock.setTimer(this.#starts > 0 ? PERIOD_MS : RETRY_MS, () => {
      this.#next = undefined;
      this.#starts = 0;
      this.#startWaiting();
    });
  }

  async #run(check: HealthCheck<User>): Promise<void> {
    const { clock, openFiles, random } = this.#context;
    const { intervalMs, namespace, timeoutMs } = check.target;
    const startedAt = clock.now();
    check.running = new AbortController();
    check.isLate = false;
    this.#running.add(check);
    this.#queue.set(check, startedAt + timeoutMs);
    await this.#make(check, check.running.signal);
    check.running = undefined;
    this.#running.delete(check);
    this.#queue.delete(check);
    openFiles.giveCheck(namespace);
    if (!check.isRemoved && !this.#isClosed) {
      const pause = intervalMs * (1 + JITTER * (2 * random() - 1));
      this.#queue.set(check, startedAt + pause);
    }
    this.#startWaiting();
  }
}
