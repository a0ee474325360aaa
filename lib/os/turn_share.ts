/**
 * Limits the work that clients can cause to a share of each turn of the event loop, so that other
 * work has time.
 *
 * @module
 */
import type { Clock } from "./clock.ts";

/**
 * One kind of work. Small pieces of it ask before they begin, and begin in this order. Counted, not
 * timed: many pieces may ask in one turn before the first of them has begun.
 */
export class TurnShare {
  readonly #waiting: (() => void)[] = [];
  #turn: Promise<void> | undefined;
  #pieces = 0;

  /** `most`: pieces of work in one turn. */
  constructor(
    private readonly edges: { readonly clock: Pick<Clock, "yieldToEventLoop"> },
    private readonly most: number,
  ) {}

  /** Resolves when the turn of the last piece has ended. */
  async ended(): Promise<void> {
    while (this.#turn) await this.#turn;
  }

  /** Resolves at once while the share of this turn lasts, otherwise in one of the next turns. */
  take(): Promise<void> {
    this.#turn ??= this.#begin();
    if (this.#pieces >= this.most) return new Promise((resolve) => this.#waiting.push(resolve));
    this.#pieces++;
    return Promise.resolve();
  }

  async #begin(): Promise<void> {
    await this.edges.clock.yieldToEventLoop();
    const next = this.#waiting.splice(0, this.most);
    this.#pieces = next.length;
    this.#turn = next.length > 0 ? this.#begin() : undefined;
    for (const begin of next) begin();
  }
}
