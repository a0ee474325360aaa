import type { Clock, Timer } from "../os/clock.ts";

/** Sends a request to an API server, and aborts it if it takes longer than `ms`. */
export async function answeredInTime<T>(
  { clock, ms, signal }: {
    readonly clock: Clock;
    readonly ms: number;
    readonly signal: AbortSignal;
  },
  send: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  using call = new LinkedAbort(signal);
  using _limit = new Watchdog(
    clock,
    ms,
    () => call.abort(new Error("the API server did not answer in time")),
  );
  return await send(call.signal);
}

/** An AbortController that also follows another signal until it is disposed. */
export class LinkedAbort implements Disposable {
  readonly #controller = new AbortController();
  readonly #parent: AbortSignal;
  readonly #follow = () => this.#controller.abort(this.#parent.reason);

  // Not `AbortSignal.any()`: its results would stay referenced by a signal that lives as long as
  // the process.
  constructor(parent: AbortSignal) {
    this.#parent = parent;
    if (parent.aborted) this.#follow();
    else parent.addEventListener("abort", this.#follow, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#controller.abort(reason);
  }

  [Symbol.dispose](): void {
    this.#parent.removeEventListener("abort", this.#follow);
  }
}

/** Calls back once if {@linkcode touch} was not called for `silenceMs`. */
export class Watchdog implements Disposable {
  #touchedAt: number;
  #timer: Timer;

  /** Starts to wait at once. */
  constructor(
    private readonly clock: Clock,
    private readonly silenceMs: number,
    private readonly onSilence: () => void,
  ) {
    this.#touchedAt = clock.now();
    this.#timer = this.#arm();
  }

  /** Restarts the time. Needs no timer, so it may be called for each event. */
  touch(): void {
    this.#touchedAt = this.clock.now();
  }

  [Symbol.dispose](): void {
    this.#timer.cancel();
  }

  #arm(): Timer {
    const left = this.silenceMs - (this.clock.now() - this.#touchedAt);
    return this.clock.setTimer(Math.ceil(left), () => {
      if (this.clock.now() - this.#touchedAt >= this.silenceMs) this.onSilence();
      else this.#timer = this.#arm();
    });
  }
}
