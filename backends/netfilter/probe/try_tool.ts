/**
 * Runs a program that may be missing, hang or print anything; each outcome is a result.
 *
 * @module
 */
import {
  CommandError,
  type CommandResult,
  type CommandRunner,
} from "../../../lib/os/command_runner.ts";

export interface ProbeDependencies {
  readonly commands: CommandRunner;
  /** For each program without its own time-out. @default {15,000} */
  readonly timeoutMs?: number;
}

interface TryOptions {
  readonly stdin?: string;
  /** @default {that of the dependencies} */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal | undefined;
  /** As {@linkcode CommandOptions.mayBeRecent}. @default {false} */
  readonly mayBeRecent?: boolean;
  /** Receives each line of the output; then `out` is empty. */
  readonly onLine?: (line: string) => void;
}

/** The result of a run. */
export type ToolAnswer =
  | { readonly kind: "ended"; readonly code: number; readonly out: string; readonly err: string }
  | {
    /**
     * `stuck`: nothing is known, because the tool was too slow or was ended by another program.
     * `crashed`: the reason contains the remedy where one is known.
     */
    readonly kind: "missing" | "stuck" | "crashed" | "failed";
    readonly reason: string;
  };

/**
 * A tool answers in milliseconds, or in seconds on a busy machine. Only a hanging tool takes
 * longer.
 */
const TIMEOUT_MS = 15_000;

/** Runs it. Throws only when the caller gave up. */
export async function tryTool(
  { commands, timeoutMs: usualMs = TIMEOUT_MS }: ProbeDependencies,
  line: readonly [program: string, ...args: string[]],
  { stdin, timeoutMs = usualMs, signal, mayBeRecent, onLine }: TryOptions = {},
): Promise<ToolAnswer> {
  const [program, ...args] = line;
  try {
    const { code, stdout, stderr } = await commands.run(program, args, {
      timeoutMs,
      ...(stdin !== undefined && { stdin }),
      ...(signal && { signal }),
      ...(mayBeRecent && { mayBeRecent }),
      ...(onLine && { onLine }),
    });
    return { kind: "ended", code, out: stdout, err: stderr };
  } catch (error) {
    if (!(error instanceof CommandError) || error.kind === "aborted") throw error;
    const kinds = {
      "not-found": "missing",
      "not-permitted": "missing",
      timeout: "stuck",
      killed: "stuck",
      crashed: "crashed",
      failed: "failed",
    } as const;
    return { kind: kinds[error.kind], reason: reasonOf(error, timeoutMs) };
  }
}

function reasonOf({ program, kind, message }: CommandError, timeoutMs: number): string {
  // Deno refuses a program that was installed after its start, as it refuses one in another folder.
  if (kind === "not-found" || kind === "not-permitted") return `${program} is not on the PATH`;
  return kind === "timeout" ? `${program} did not answer within ${timeoutMs / 1000} s` : message;
}

/** Whether a message reports missing permission. */
export function saysNotPermitted(words: string): boolean {
  return /Operation not permitted|Permission denied|[Yy]ou must be root/.test(words);
}

/** Whether a tool of iptables waited for `/run/xtables.lock` in vain; it has changed nothing then. */
export function saysLocked(words: string): boolean {
  return /xtables lock/.test(words);
}

/** Returns the first line with content, shortened, since the output may be anything. */
export function firstLine(words: string): string {
  const line = words.split("\n").map((each) => each.trim()).find((each) => each !== "") ?? "";
  // deno-lint-ignore no-control-regex -- a broken program's bytes must not reach a terminal
  const plain = line.replace(/[\x00-\x1f\x7f-\x9f]/g, "\ufffd");
  return plain.length > 160 ? `${plain.slice(0, 160)}…` : plain;
}

/** The result: the output, nothing to read, or the reason for a failure. */
export type Seen<T> =
  | { readonly state: "seen"; readonly value: T }
  | { readonly state: "absent"; readonly reason: string }
  | { readonly state: "refused"; readonly reason: string };

export type AskOptions = Pick<TryOptions, "mayBeRecent" | "onLine" | "signal" | "timeoutMs">;

/** A machine that is busy with a large rule set answers late. */
const READ_TIMEOUT_MS = 30_000;

/** Runs a tool. Missing: `absent`. Any other failure, an exit code too: `refused`. */
export async function askTool(
  commands: CommandRunner,
  line: readonly [program: string, ...args: string[]],
  options: AskOptions = {},
): Promise<Seen<string>> {
  const answer = await tryTool({ commands }, line, { timeoutMs: READ_TIMEOUT_MS, ...options });
  if (answer.kind === "missing") return { state: "absent", reason: answer.reason };
  if (answer.kind !== "ended") return { state: "refused", reason: answer.reason };
  const { code, out: stdout, err: stderr } = answer;
  if (code === 0) return { state: "seen", value: stdout };
  return { state: "refused", reason: reasonOfExit(line[0], { code, stdout, stderr }) };
}

/**
 * Reads a file of `/proc`, which Deno itself opens to nothing short of all permissions. `absent`: there
 * is none, since the part of the kernel that has it is not loaded. Looking does not load it.
 */
export async function readProcFile(
  commands: CommandRunner,
  path: string,
  options: AskOptions = {},
): Promise<Seen<string>> {
  const seen = await askTool(commands, ["cat", path], options);
  if (seen.state !== "refused" || !seen.reason.includes("No such file")) return seen;
  return { state: "absent", reason: `${path} does not exist` };
}

/** The reason of an exit code, in the tool's words. */
export function reasonOfExit(program: string, { code, stderr }: CommandResult): string {
  // iptables-nft warns so whenever legacy tables exist, also when it did its work.
  const words = stderr.replaceAll(/^# Warning: .*$/gm, "")
    // The kernel's reason is on a line below the name of the program.
    .replace(/^\S+ v[\d.]+ \(\w+\):\s*\n/m, "");
  return firstLine(words) || `${program} ended with ${code}`;
}
