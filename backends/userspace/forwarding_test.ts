import { assertEquals } from "@std/assert";
import { FakeClock, settle } from "../../tests/support/fakes/fake_clock.ts";
import { OpenCount, RateLimitedLog } from "./forwarding.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";

Deno.test("OpenCount.zero() resolves at once when nothing is open", async () => {
  await new OpenCount().zero();
});

Deno.test("OpenCount.zero() resolves for all waiters when the last one is closed", async () => {
  const count = new OpenCount();
  const done: string[] = [];
  count.add();
  count.add();
  for (const name of ["a", "b"]) count.zero().then(() => done.push(name));
  count.remove();
  await settle();
  assertEquals([done, count.value], [[], 1] as never);
  count.remove();
  await settle();
  assertEquals(done, ["a", "b"]);
});

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
