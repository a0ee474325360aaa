import { assertEquals } from "@std/assert";
import { MemoryLogger } from "../../../tests/support/memory_logger.ts";
import { warnOfToolsPath } from "./warn_of_tools_path.ts";

Deno.test("warnOfToolsPath() warns only of folders that are not first in the PATH", () => {
  const process = { env: (name: string) => name === "PATH" ? "/opt/tools:/usr/bin" : undefined };
  const cases: readonly [folders: readonly string[], warnings: number][] = [
    [[], 0],
    [["/opt/tools"], 0],
    [["/opt/others"], 1],
  ];
  for (const [toolsPath, warnings] of cases) {
    const logger = new MemoryLogger();
    warnOfToolsPath({ process }, { logger, toolsPath });
    assertEquals(logger.lines.map(({ level }) => level), Array(warnings).fill("warn"));
  }
});
