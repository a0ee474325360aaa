/**
 * Collects the garbage of the start once.
 *
 * @module
 */
import { type LoopId, loopText } from "../../controller/loop_id.ts";
import type { LoopObserver } from "../../controller/loop_parts.ts";
import type { Clock, Timer } from "../../os/clock.ts";

/** Enough for the loops of other families and controllers to finish, too. */
const DELAY_MS = 1000;

/**
 * After the first complete sync of the loops. V8 lets the heap grow to a multiple of what it needs,
 * and would keep what only the start needed until the next collection, perhaps for hours.
 */
export class StartCollection implements LoopObserver, Disposable {
  readonly #clock: Clock;
  readonly #collect: () => void;
  readonly #complete = new Set<string>();
  #timer: Timer | undefined;

  constructor({ clock }: { readonly clock: Clock }, collect: () => void) {
    this.#clock = clock;
    this.#collect = collect;
  }

  synced(loop: LoopId, { isComplete }: { readonly isComplete: boolean }): void {
    const name = loopText(loop);
    if (!isComplete || this.#complete.has(name)) return;
    this.#complete.add(name);
    this.#timer?.cancel();
    this.#timer = this.#clock.setTimer(DELAY_MS, this.#collect);
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
  }
}
