/**
 * Tasks that belong to the program: the failure of one stops it, and none is left floating.
 *
 * @module
 */
import { whenAborted } from "../os/when_aborted.ts";

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
}
