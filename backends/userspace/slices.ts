import type { Clock } from "../../lib/os/clock.ts";

/** Items after which, and milliseconds after which, other tasks have their turn. */
const MAX_ITEMS = 256;
const MAX_MS = 5;

/** Visits every item; connections are served in between. */
export async function forEachInSlices<T>(
  clock: Clock,
  items: Iterable<T>,
  visit: (item: T) => void,
): Promise<void> {
  let count = 0;
  let start = clock.now();
  for (const item of items) {
    visit(item);
    if (++count < MAX_ITEMS && (count % 16 !== 0 || clock.now() - start < MAX_MS)) continue;
    await clock.yieldToEventLoop();
    count = 0;
    start = clock.now();
  }
}
