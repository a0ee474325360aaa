import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { LimitedLines } from "./limited_lines.ts";

Deno.test("LimitedLines logs a hundred lines a minute, and that it leaves out more", async () => {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const lines = new LimitedLines({ clock, logger });
  for (let index = 0; index < 60; index++) {
    lines.warn("bad", { index });
    lines.info("good", { index });
  }
  const left = "Leaving out further lines about single objects for up to a minute";
  assertEquals(logger.lines.map(({ message }) => message), [
    ...Array.from({ length: 50 }, () => ["bad", "good"]).flat(),
    left,
  ]);
  await clock.advance(60_000);
  lines.info("good", {});
  assertEquals(logger.lines.at(-1)?.message, "good");
});
