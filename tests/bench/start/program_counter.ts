/**
 * Counts the programs that a process starts: stand-ins on its PATH write a line and become the tool.
 *
 * @module
 */
import { TOOLS } from "../../../lib/os/tools.ts";
import { runTool } from "../../support/drivers/run_tool.ts";

/** Puts stand-ins in front of the PATH of this process and of those that it starts from now on. */
export async function countPrograms(folder: string): Promise<ProgramCounter> {
  const stands = `${folder}/programs`;
  const log = `${folder}/programs.log`;
  await Deno.mkdir(stands);
  await Deno.writeTextFile(log, "");
  for (const { name } of TOOLS) {
    const path = await runTool("sh", ["-c", `command -v ${name} || true`]);
    if (path === "") continue;
    const script = `#!/bin/sh\necho ${name} >>${log}\nexec ${path.trim()} "$@"\n`;
    await Deno.writeTextFile(`${stands}/${name}`, script, { mode: 0o755 });
  }
  Deno.env.set("PATH", `${stands}:${Deno.env.get("PATH")}`);
  return {
    async counts() {
      const names = (await Deno.readTextFile(log)).trim().split("\n");
      const groups = Object.groupBy(names, (name) => name);
      return Object.fromEntries(
        Object.entries(groups).map(([name, lines]) => [name, lines?.length ?? 0]),
      );
    },
  };
}

/** The programs that were started so far. */
export interface ProgramCounter {
  /** Number of starts, by name. */
  counts(): Promise<Readonly<Record<string, number>>>;
}
