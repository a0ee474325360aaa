/**
 * Runs `ipset`: reads sets of any name and type, and carries out batches of lines. With the text of
 * sets (`ipset_text.ts`) the toolkit of every controller that keeps sets of its own.
 *
 * @module
 */
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { type AskOptions, askTool, type Seen } from "../probe/try_tool.ts";
import { inSteps } from "../in_steps.ts";
import { runBatch } from "../tool_batch.ts";
import { readIpsetSave, type SavedSet } from "./ipset_text.ts";

interface IpsetDependencies {
  readonly clock: Pick<Clock, "now" | "nextTurn">;
  readonly commands: CommandRunner;
}

/** The sets to read, and the options of the read. */
interface ReadSetsOptions extends AskOptions {
  readonly isWanted: (name: string) => boolean;
}

/** Carries out lines for `ipset restore`, up to the first that fails; throws as {@linkcode runBatch}. */
export async function restoreSets(
  commands: CommandRunner,
  { lines, timeoutMs }: { readonly lines: readonly string[]; readonly timeoutMs: number },
): Promise<void> {
  await runBatch(commands, { command: ["ipset", "restore"], lines, timeoutMs });
}

/** Reads sets with their options and entries, by name. */
export async function readSets(
  { clock, commands }: IpsetDependencies,
  { isWanted, ...options }: ReadSetsOptions,
): Promise<Seen<ReadonlyMap<string, SavedSet>>> {
  const seen = await askTool(commands, ["ipset", "save"], options);
  if (seen.state !== "seen") return seen;
  return { ...seen, value: await inSteps({ clock }, readIpsetSave(seen.value, isWanted)) };
}

/** Reads the names of all sets. */
export async function listSets(
  commands: CommandRunner,
  options: AskOptions = {},
): Promise<Seen<readonly string[]>> {
  const seen = await askTool(commands, ["ipset", "list", "-n"], options);
  if (seen.state !== "seen") return seen;
  return { ...seen, value: seen.value.split("\n").filter((name) => name !== "") };
}
