/**
 * One loop for all sockets and timers of a process, and the table that owns each file descriptor.
 *
 * @module
 */
import type { Clock, Timer } from "../../../lib/os/clock.ts";
import { EpollEvents, type Libc } from "./libc.ts";

/** What an open file belongs to. */
export interface FdOwner {
  /** Something has happened, as bits of `EPOLL`. */
  onEvents(mask: number): void;
}

const EVENTS_PER_TURN = 256;
/** Events that are served as of one time. */
const EVENTS_PER_TIME = 8;

/** No wait is longer than this: 25 days do not fit into 32 bits. */
const LONGEST_WAIT_MS = 3_600_000;

interface PendingTimer {
  readonly due: number;
  /** `undefined` = cancelled, or struck. */
  callback: (() => void) | undefined;
}

/**
 * Waits for events and calls their owners. {@linkcode run} does not return to Deno's event loop, whose
 * sockets, files and timers stand still meanwhile: what it serves is all that a process does.
 */
export class EventLoop {
  /**
   * Timers of this loop, and the time: while events are served that of some of them ago, since asking for it
   * ten times takes as much CPU as a system call.
   */
  readonly clock: Clock;
  readonly libc: Libc;
  readonly #base: Pick<Clock, "now">;
  readonly #onError: (error: unknown) => void;
  readonly #events = new EpollEvents(EVENTS_PER_TURN);
  readonly #epoll: number;
  /** By fd. A number is used again at once; events of its former file have another tag. */
  readonly #owners: (FdOwner | undefined)[] = [];
  readonly #tags: number[] = [];
  #open = 0;
  #now: number | undefined;
  /** The last one is due first: it is taken off the end. */
  readonly #timers: PendingTimer[] = [];
  #again: (() => void)[] = [];
  #isStopped = false;

  /** `onError` gets what owners and timers throw. */
  constructor(
    libc: Libc,
    base: Clock,
    onError: (error: unknown) => void,
  ) {
    this.libc = libc;
    this.#base = base;
    this.#onError = onError;
    this.#epoll = libc.epoll();
    const sleep = (ms: number, signal?: AbortSignal) => this.#sleep(ms, signal);
    this.clock = {
      ...base,
      now: () => this.#now ?? base.now(),
      setTimer: (ms, callback) => this.#setTimer(ms, callback),
      sleep,
      yieldToEventLoop: () => sleep(0),
      nextTurn: () => sleep(0),
    };
  }

  /** Open files, besides the loop's own. */
  get size(): number {
    return this.#open;
  }

  /** Takes over an open file; `mask`: the events that are reported, none if 0. */
  own(fd: number, owner: FdOwner, mask: number): void {
    if (this.#owners[fd] !== undefined) throw new Error(`fd ${fd} has an owner`);
    this.#owners[fd] = owner;
    this.#open++;
    const tag = this.#tags[fd] = ((this.#tags[fd] ?? 0) + 1) | 0;
    if (mask === 0) return;
    try {
      this.libc.watch(this.#epoll, fd, mask, tag);
    } catch (error) {
      this.close(fd, owner);
      throw error;
    }
  }

  /** Begins to report events of a file that was owned with mask 0. */
  watch(fd: number, owner: FdOwner, mask: number): void {
    this.#assertOwner(fd, owner);
    this.libc.watch(this.#epoll, fd, mask, this.#tags[fd]!);
  }

  /** Changes what is reported. */
  rewatch(fd: number, owner: FdOwner, mask: number): void {
    this.#assertOwner(fd, owner);
    this.libc.rewatch(this.#epoll, fd, mask, this.#tags[fd]!);
  }

  /** Closes a file; only its owner may. */
  close(fd: number, owner: FdOwner): void {
    this.#assertOwner(fd, owner);
    this.#owners[fd] = undefined;
    this.#open--;
    this.libc.close(fd);
  }

  /** Calls back in the next turn, which does not wait. */
  again(callback: () => void): void {
    this.#again.push(callback);
  }

  /** Serves until {@linkcode stop} is called. */
  run(): void {
    const runMicrotasks = microtaskRunner();
    while (!this.#isStopped) {
      this.turn();
      runMicrotasks();
    }
  }

  stop(): void {
    this.#isStopped = true;
  }

  /** Gives up its own file. All others have to be closed before. */
  dispose(): void {
    this.libc.close(this.#epoll);
  }

  /** Waits for events, at most until the next timer is due or for `mostMs`, and serves them. */
  turn(mostMs = Infinity): void {
    const { libc } = this;
    const count = libc.wait(this.#epoll, this.#events, this.#waitMs(mostMs));
    for (let index = 0; index < count; index++) {
      if (index % EVENTS_PER_TIME === 0) this.#now = this.#base.now();
      const fd = this.#events.fdAt(index);
      const owner = this.#owners[fd];
      if (owner === undefined || this.#tags[fd] !== this.#events.tagAt(index)) continue;
      try {
        owner.onEvents(this.#events.maskAt(index));
      } catch (error) {
        this.#onError(error);
      }
    }
    this.#now = undefined;
    const again = this.#again;
    if (again.length > 0) {
      this.#again = [];
      for (const callback of again) this.#call(callback);
    }
    this.#strike();
  }

  #assertOwner(fd: number, owner: FdOwner): void {
    if (this.#owners[fd] !== owner) throw new Error(`fd ${fd} belongs to another owner`);
  }

  #waitMs(most: number): number {
    if (this.#again.length > 0) return 0;
    const next = this.#timers.at(-1);
    const ms = next === undefined ? most : Math.min(most, next.due - this.#base.now());
    return Math.ceil(Math.max(0, Math.min(ms, LONGEST_WAIT_MS)));
  }

  #setTimer(ms: number, callback: () => void): Timer {
    const timer: PendingTimer = { due: this.#base.now() + ms, callback };
    this.#timers.splice(this.#placeOf(timer.due), 0, timer);
    return { cancel: () => this.#cancel(timer) };
  }

  #cancel(timer: PendingTimer): void {
    if (timer.callback === undefined) return;
    timer.callback = undefined;
    const index = this.#timers.indexOf(timer, this.#placeOf(timer.due));
    if (index >= 0) this.#timers.splice(index, 1);
  }

  /** The place of a new timer: before those that are due then or earlier. */
  #placeOf(due: number): number {
    let [low, high] = [0, this.#timers.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#timers[middle]!.due > due) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const onAbort = () => {
        timer.cancel();
        reject(signal!.reason);
      };
      const timer = this.#setTimer(ms, () => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      });
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }

  #strike(): void {
    if (this.#timers.length === 0) return;
    const now = this.#base.now();
    // Those that are set meanwhile have to wait for the next turn, also those of 0 ms.
    const struck: PendingTimer[] = [];
    while (this.#timers.length > 0 && this.#timers.at(-1)!.due <= now) {
      struck.push(this.#timers.pop()!);
    }
    for (const timer of struck) {
      const { callback } = timer;
      timer.callback = undefined;
      if (callback) this.#call(callback);
    }
  }

  #call(callback: () => void): void {
    try {
      callback();
    } catch (error) {
      this.#onError(error);
    }
  }
}

/**
 * What V8 does by itself only when a turn of Deno's loop ends: continuing what awaits promises. An empty
 * queue takes 20 ns.
 */
function microtaskRunner(): () => void {
  const deno = Deno as unknown as Record<symbol, { core: { runMicrotasks(): void } }> & {
    readonly internal: symbol;
  };
  return deno[deno.internal]!.core.runMicrotasks;
}
