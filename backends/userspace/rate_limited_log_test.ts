import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { RateLimitedLog } from "./rate_limited_log.ts";

Deno.test("RateLimitedLog.warn() prints each sentence once in an interval, and counts the rest", async () => {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const log = new RateLimitedLog({ clock, logger }, 1000);
  log.warn("a", { n: 1 });
  log.warn("a", { n: 2 });
  log.warn("b");
  await clock.advance(999);
  log.warn("a", { n: 3 });
  await clock.advance(1);
  log.warn("a", { n: 4 });
  await clock.advance(1000);
  log.warn("a", { n: 5 });
  assertEquals(logger.lines.map(({ message, fields }) => [message, fields]), [
    ["a", { n: 1 }],
    ["b", {}],
    ["a", { n: 4, suppressed: 2 }],
    ["a", { n: 5 }],
  ]);
});
