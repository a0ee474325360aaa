const DEFAULT_SHORTEST_MS = 300_000;
/** Reading takes seconds where there are many Services; at any size it is done once an hour. */
const LONGEST_EVERY_MS = 3_600_000;
const IDLE_PARTS = 300;

/** Plans comparisons. Times are milliseconds of one clock. */
export class VerificationSchedule {
  readonly #random: () => number;
  readonly #shortestMs: number;
  #dueAt: number | undefined;

  /** `random`: from 0 to 1, as `Math.random`. `shortestMs`: between two comparisons that cost nothing. */
  constructor(
    random: () => number,
    { shortestMs = DEFAULT_SHORTEST_MS }: { readonly shortestMs?: number } = {},
  ) {
    this.#random = random;
    this.#shortestMs = shortestMs;
  }

  /** Also true while no time is planned. */
  isDue(now: number): boolean {
    return this.#dueAt === undefined || now >= this.#dueAt;
  }

  /** Plans the first comparison by its expected cost, unless one is planned. */
  expect(now: number, durationMs: number): void {
    if (this.#dueAt === undefined) this.verified(now, durationMs);
  }

  /** Everything was read and compared, which took so long. */
  verified(now: number, durationMs: number): void {
    const wanted = Math.max(this.#shortestMs, durationMs * IDLE_PARTS);
    // The nodes of a cluster that were started together are not to beat in time.
    const every = Math.min(wanted, LONGEST_EVERY_MS) * (1 - this.#random() / 10);
    this.#dueAt = now + every;
  }
}
