/**
 * Collects the garbage of the start once.
 *
 * @module
 */
import { loopText } from "../../engine/loop_id.ts";
import type { SyncEvent, SyncListener } from "../../engine/sync_event.ts";
import type { Clock, Timer } from "../../os/clock.ts";

/** Enough for the loops of other families and controllers to finish, too. */
const DELAY_MS = 1000;

/**
 * After the first complete sync of the loops. V8 lets the heap grow to a multiple of what it needs,
 * and would keep what only the start needed until the next collection, perhaps for hours.
 */
export class StartCollection implements SyncListener, Disposable {
  readonly #clock: Clock;
  readonly #collect: () => void;
  readonly #complete = new Set<string>();
  #timer: Timer | undefined;

  constructor({ clock }: { readonly clock: Clock }, collect: () => void) {
    this.#clock = clock;
    this.#collect = collect;
  }

  on(event: SyncEvent): void {
    if (event.kind !== "synced" || !event.isComplete) return;
    const name = loopText(event.loop);
    if (this.#complete.has(name)) return;
    this.#complete.add(name);
    this.#timer?.cancel();
    this.#timer = this.#clock.setTimer(DELAY_MS, this.#collect);
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
  }
}
