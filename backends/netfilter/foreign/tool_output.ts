/**
 * What a tool of the machine says, where a missing tool and a refusal are answers like any other.
 *
 * @module
 */
import {
  CommandError,
  type CommandOptions,
  type CommandResult,
  type CommandRunner,
} from "../../../lib/os/command_runner.ts";

/** What came of asking: what was said, that there is nothing to ask, or why there is no answer. */
export type Seen<T> =
  | { readonly state: "seen"; readonly value: T }
  | { readonly state: "absent"; readonly reason: string }
  | { readonly state: "refused"; readonly reason: string };

/** Runs a tool. Missing: `absent`. Any other failure, an exit code too: `refused`. */
export async function askTool(
  commands: CommandRunner,
  [program, ...args]: readonly [string, ...string[]],
  options: CommandOptions = {},
): Promise<Seen<string>> {
  try {
    const result = await commands.run(program, args, options);
    if (result.code === 0) return { state: "seen", value: result.stdout };
    return { state: "refused", reason: reasonOfExit(program, result) };
  } catch (error) {
    if (isMissingProgram(error)) return { state: "absent", reason: `${program} is not installed` };
    if (!(error instanceof CommandError)) throw error;
    return { state: "refused", reason: error.message };
  }
}

/**
 * Reads a file of `/proc`, which Deno itself opens to nothing short of all permissions. `absent`: there
 * is none, since the part of the kernel that has it is not loaded. Looking does not load it.
 */
export async function readProcFile(
  commands: CommandRunner,
  path: string,
  options: CommandOptions = {},
): Promise<Seen<string>> {
  const seen = await askTool(commands, ["cat", path], options);
  if (seen.state !== "refused" || !seen.reason.includes("No such file")) return seen;
  return { state: "absent", reason: `${path} is not there` };
}

/** Whether a program could not be started since the machine, or the permissions, lack it. */
export function isMissingProgram(error: unknown): boolean {
  return error instanceof CommandError &&
    (error.kind === "not-found" || error.kind === "not-permitted");
}

/** Whether a refusal is for want of rights: then there is nothing that this process could remove either. */
export function wantsRights(reason: string): boolean {
  return /not permitted|permission denied|must be root/i.test(reason);
}

/** Why a tool ended with a code, in its own words. */
export function reasonOfExit(program: string, { code, stderr }: CommandResult): string {
  const words = stderr.split("\n").map((line) => line.trim()).filter((line) =>
    // iptables-nft says so whenever legacy tables exist, also when it did its work.
    line !== "" && !line.startsWith("# Warning: ")
  );
  return words[0] ?? `${program} ended with ${code}`;
}
