import type { Clock, Timer } from "../os/clock.ts";

/** Calls back once if {@linkcode touch} was not called for `silenceMs`. */
export class Watchdog implements Disposable {
  readonly #clock: Clock;
  readonly #silenceMs: number;
  readonly #onSilence: () => void;
  #touchedAt: number;
  #timer: Timer;

  /** Starts to wait at once. */
  constructor(
    clock: Clock,
    options: { readonly silenceMs: number; readonly onSilence: () => void },
  ) {
    this.#clock = clock;
    this.#silenceMs = options.silenceMs;
    this.#onSilence = options.onSilence;
    this.#touchedAt = clock.now();
    this.#timer = this.#arm();
  }

  /** Restarts the time. Needs no timer, so it may be called for each event. */
  touch(): void {
    this.#touchedAt = this.#clock.now();
  }

  [Symbol.dispose](): void {
    this.#timer.cancel();
  }

  #arm(): Timer {
    const left = this.#silenceMs - (this.#clock.now() - this.#touchedAt);
    return this.#clock.setTimer(Math.ceil(left), () => {
      if (this.#clock.now() - this.#touchedAt >= this.#silenceMs) this.#onSilence();
      else this.#timer = this.#arm();
    });
  }
}
