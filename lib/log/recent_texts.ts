/**
 * Remembers what was said, for warnings about a state that lasts while its object keeps changing.
 *
 * @module
 */
import type { Clock } from "../os/clock.ts";

const HOUR_MS = 3_600_000;
/** Texts that are remembered; past that the oldest are forgotten, and may be said again. */
const MOST_TEXTS = 1000;

/** Tells whether something was said within the last hour. */
export class RecentTexts {
  readonly #clock: Clock;
  /** When each text was said, oldest first. */
  readonly #told = new Map<string, number>();

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /** True at the first call with that text in an hour. */
  isNews(text: string): boolean {
    const now = this.#clock.now();
    const at = this.#told.get(text);
    if (at !== undefined && now - at < HOUR_MS) return false;
    this.#told.delete(text);
    this.#told.set(text, now);
    for (const [oldest] of this.#told) {
      if (this.#told.size <= MOST_TEXTS) break;
      this.#told.delete(oldest);
    }
    return true;
  }
}
