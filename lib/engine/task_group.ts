import type { Logger } from "../log/logger.ts";
import type { Clock } from "../os/clock.ts";
import { whenAborted } from "../os/when_aborted.ts";

/** Time for a task to end: a tool that ignores SIGTERM is killed sooner. */
const END_MS = 15_000;

/** A set of tasks that end together: the failure of one stops all. */
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

  /** Runs a task, which must end soon after the signal is aborted. */
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

  /** Aborts every task. */
  stop(): void {
    this.#controller.abort();
  }

  /** Resolves once the tasks have been aborted. */
  stopped(): Promise<void> {
    return whenAborted(this.signal);
  }

  /** Resolves when all tasks have ended; rejects with the failure that stopped them. */
  async ended(): Promise<void> {
    await Promise.all(this.#tasks.values());
    if (this.#failure) throw this.#failure.error;
  }

  /**
   * Like {@linkcode ended}, but after 15 s ignores tasks that have not ended, because the process
   * must exit.
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
