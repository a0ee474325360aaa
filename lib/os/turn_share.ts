/**
 * A share of each turn of the event loop, so that work which others can cause at will leaves time for
 * everything else.
 *
 * @module
 */
import type { Clock } from "./clock.ts";

/**
 * One kind of work. Small pieces of it ask before they begin. Counted, not timed: many pieces may ask
 * in one turn before the first of them has begun.
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

  /** Resolves when the turn has ended in which work was last begun. */
  async ended(): Promise<void> {
    await this.#turn;
  }

  /** Resolves at once while the share of this turn lasts, else in one of the next turns. */
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
