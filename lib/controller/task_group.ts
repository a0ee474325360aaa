/**
 * Tasks that belong to the program: the failure of one stops it, and none is left floating.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import type { Clock } from "../os/clock.ts";
import { whenAborted } from "../os/when_aborted.ts";

/** A task that was asked to end gets this long: a tool that ignores SIGTERM is killed sooner. */
const END_MS = 15_000;

/** A set of running tasks that end together. */
export class TaskGroup {
  readonly #controller = new AbortController();
  readonly #tasks = new Map<string, Promise<void>>();
  #failure: { readonly name: string; readonly error: unknown } | undefined;

  /** Aborted by {@linkcode stop}, by the outer signal, and by the first failure. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  constructor(outer: AbortSignal) {
    if (outer.aborted) this.stop();
    else outer.addEventListener("abort", () => this.stop(), { once: true });
  }

  /** Runs a task. It has to end soon after the signal is aborted. */
  run(name: string, task: (signal: AbortSignal) => Promise<void>): void {
    const running = task(this.signal)
      .catch((error) => {
        if (this.signal.aborted) return;
        this.#failure = { name, error };
        this.stop();
      })
      .finally(() => this.#tasks.delete(name));
    this.#tasks.set(name, running);
  }

  /** Asks every task to end. */
  stop(): void {
    this.#controller.abort();
  }

  /** Resolves once the tasks have been asked to end. */
  stopped(): Promise<void> {
    return whenAborted(this.signal);
  }

  /** Resolves when all tasks have ended; rejects with the failure that ended them. */
  async ended(): Promise<void> {
    await Promise.all(this.#tasks.values());
    if (this.#failure) throw this.#failure.error;
  }

  /**
   * As {@linkcode ended}, but goes on after 15 s without those that did not end: a process that is
   * asked to end must.
   */
  async endedInTime(
    { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  ): Promise<void> {
    const overdue = Promise.withResolvers<void>();
    const timer = clock.setTimer(END_MS, () => {
      logger.error("Continuing without waiting for tasks that did not end", {
        tasks: [...this.#tasks.keys()],
      });
      overdue.resolve();
    });
    try {
      await Promise.race([this.ended(), overdue.promise]);
    } finally {
      timer.cancel();
    }
    if (this.#failure) throw this.#failure.error;
  }
}
