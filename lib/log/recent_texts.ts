import type { Clock } from "../os/clock.ts";

const HOUR_MS = 3_600_000;
/** Number of remembered texts; the oldest are forgotten and may be logged again. */
const MOST_TEXTS = 1000;

/**
 * Remembers texts for an hour, for warnings about a state that lasts while its object keeps
 * changing.
 */
export class RecentTexts {
  /** The time of the last report of each text, oldest first. */
  readonly #reportedAt = new Map<string, number>();

  constructor(private readonly edges: { readonly clock: Clock }) {}

  /** Returns true for the first call with this text in an hour. */
  isNews(text: string): boolean {
    const now = this.edges.clock.now();
    const at = this.#reportedAt.get(text);
    if (at !== undefined && now - at < HOUR_MS) return false;
    this.#reportedAt.delete(text);
    this.#reportedAt.set(text, now);
    for (const [oldest] of this.#reportedAt) {
      if (this.#reportedAt.size <= MOST_TEXTS) break;
      this.#reportedAt.delete(oldest);
    }
    return true;
  }
}
