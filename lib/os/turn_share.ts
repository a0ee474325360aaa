/**
 * Limits the work that clients can cause to a share of each turn of the event loop, so that other
 * work has time.
 *
 * @module
 */
import type { Clock } from "./clock.ts";

/**
 * One kind of work. Small pieces of it ask before they begin. Counted, not timed: many pieces may
 * ask in one turn before the first of them has begun.
 */
export class TurnShare {
  readonly #clock: Clock;
  readonly #most: number;
  #turn: Promise<void> | undefined;
  #pieces = 0;

  /** `most`: pieces of work in one turn. */
  constructor({ clock }: { readonly clock: Clock }, most: number) {
    this.#clock = clock;
    this.#most = most;
  }

  /** Resolves when the turn of the last piece has ended. */
  async ended(): Promise<void> {
    await this.#turn;
  }

  /** Resolves at once while the share of this turn lasts, otherwise in one of the next turns. */
  async take(): Promise<void> {
    for (;;) {
      if (this.#turn === undefined) {
        this.#pieces = 0;
        this.#turn = this.#clock.yieldToEventLoop().then(() => this.#turn = undefined);
      }
      if (this.#pieces++ < this.#most) return;
      await this.#turn;
    }
  }
}
