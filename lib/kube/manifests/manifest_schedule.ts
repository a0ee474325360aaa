/**
 * When the manifests are looked at again: soon after a change, and now and then without one.
 *
 * @module
 */
import type { Clock, Timer } from "../../os/clock.ts";

/** A change is read once nothing has changed for this long: one save is several events. */
const QUIET_MS = 50;
/** Changes that never stop are read this often. */
const LONGEST_WAIT_MS = 1000;

/** Why the wait is over. */
export type Wake = "changed" | "due" | "aborted";

/** Gathers changes and gives the word to read. One waits at a time. */
export class ManifestSchedule {
  readonly #clock: Clock;
  #firstChangeAt: number | undefined;
  #lastChangeAt = 0;
  #dueAt = Infinity;
  #timer: Timer | undefined;
  #resolve: ((wake: Wake) => void) | undefined;

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /** Something changed. */
  noteChange(): void {
    this.#lastChangeAt = this.#clock.now();
    this.#firstChangeAt ??= this.#lastChangeAt;
    this.#arm();
  }

  /** Asks for a look at everything in `ms`, or sooner if that was asked for before. */
  lookAgainIn(ms: number): void {
    this.#dueAt = Math.min(this.#dueAt, this.#clock.now() + ms);
    this.#arm();
  }

  /** Resolves when it is time to read. What was asked for is then forgotten. */
  wait(signal: AbortSignal): Promise<Wake> {
    if (signal.aborted) return Promise.resolve("aborted");
    return new Promise((resolve) => {
      const onAbort = () => this.#finish("aborted");
      this.#resolve = (wake) => {
        signal.removeEventListener("abort", onAbort);
        resolve(wake);
      };
      signal.addEventListener("abort", onAbort, { once: true });
      this.#arm();
    });
  }

  #arm(): void {
    if (!this.#resolve) return;
    this.#timer?.cancel();
    const at = Math.min(this.#changeDueAt(), this.#dueAt);
    if (at === Infinity) return;
    this.#timer = this.#clock.setTimer(Math.max(0, at - this.#clock.now()), () => {
      // A change is read by itself unless the time for everything has come as well.
      this.#finish(this.#dueAt <= this.#clock.now() ? "due" : "changed");
    });
  }

  #changeDueAt(): number {
    if (this.#firstChangeAt === undefined) return Infinity;
    return Math.min(this.#lastChangeAt + QUIET_MS, this.#firstChangeAt + LONGEST_WAIT_MS);
  }

  #finish(wake: Wake): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#firstChangeAt = undefined;
    if (wake === "due") this.#dueAt = Infinity;
    const resolve = this.#resolve;
    this.#resolve = undefined;
    resolve?.(wake);
  }
}
