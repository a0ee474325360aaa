/**
 * Limits the work that clients can cause to a share of each turn of the event loop, so that other
 * work has time.
 *
 * @module
 */
import type { Clock } from "./clock.ts";

/**
 * One kind of work. Small pieces of it ask before they begin. Counted, not timed: many pieces may
 * ask in one turn before the first of them has begun. Clients get turns one after the other, so a
 * client that asks for one piece does not wait for all pieces of another.
 */
export class TurnShare {
  readonly #clock: Pick<Clock, "yieldToEventLoop">;
  readonly #most: number;
  /** The waiting pieces of each client, in the order in which the clients get turns. */
  readonly #waiting = new Map<unknown, (() => void)[]>();
  #turn: Promise<void> | undefined;
  #pieces = 0;

  /** `most`: pieces of work in one turn. */
  constructor(
    { clock }: { readonly clock: Pick<Clock, "yieldToEventLoop"> },
    most: number,
  ) {
    this.#clock = clock;
    this.#most = most;
  }

  /** Resolves when the turn of the last piece has ended. */
  async ended(): Promise<void> {
    while (this.#turn) await this.#turn;
  }

  /**
   * Resolves at once while the share of this turn lasts, otherwise in one of the next turns.
   * `client` is compared by identity.
   */
  take(client?: unknown): Promise<void> {
    this.#turn ??= this.#begin();
    if (this.#pieces < this.#most) {
      this.#pieces++;
      return Promise.resolve();
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    const own = this.#waiting.get(client);
    if (own) own.push(resolve);
    else this.#waiting.set(client, [resolve]);
    return promise;
  }

  async #begin(): Promise<void> {
    await this.#clock.yieldToEventLoop();
    this.#pieces = 0;
    this.#turn = this.#waiting.size > 0 ? this.#begin() : undefined;
    while (this.#pieces < this.#most && this.#waiting.size > 0) {
      this.#pieces++;
      this.#letNext();
    }
  }

  /** Lets a piece of the first client begin, and puts the client behind the others. */
  #letNext(): void {
    for (const [client, pieces] of this.#waiting) {
      this.#waiting.delete(client);
      const resolve = pieces.shift();
      if (pieces.length > 0) this.#waiting.set(client, pieces);
      return resolve?.();
    }
  }
}
