import { assertEquals } from "@std/assert";
import { MemoryLogger } from "../../../../tests/support/fakes/memory_logger.ts";
import { logNotices } from "./command.ts";

Deno.test("logNotices() leaves what a start assumes to run", () => {
  const logger = new MemoryLogger();
  const notices = (["info", "warn"] as const).map((level) => ({
    level,
    message: `of level ${level}`,
    fields: {},
  }));
  logNotices({ configuration: { notices } as never, logger: logger as never });
  assertEquals(logger.lines.map(({ message }) => message), ["of level warn"]);
});
