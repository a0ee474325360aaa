/**
 * Explains why `iptables-restore` or `iptables-save` failed. The only file that reads their
 * messages.
 *
 * @module
 */
import { CommandError } from "../../../lib/os/command_runner.ts";
import { firstLine, saysNotPermitted } from "../probe/try_tool.ts";

/**
 * `refused`: a line of the input was. `locked`: another program held the lock for too long.
 * `unavailable`: the program is missing or may not be used. `unclear`: it hung, was killed, or
 * printed an unknown message.
 */
type IptablesErrorKind = "locked" | "refused" | "unavailable" | "unclear";

/** The line that was refused. */
interface RefusedLine {
  /** The number of the line, from 1. */
  readonly number: number;
  readonly text: string;
  readonly table: string;
}

/** A failure of a tool. It may have applied a part of its input. */
export class IptablesError extends Error {
  override name = "IptablesError";
  readonly kind: IptablesErrorKind;
  /** The line that the tool named, if any. */
  readonly line?: RefusedLine;
  /** The numbers of all lines that the tool named. */
  readonly numbers: readonly number[];
  /** The words of the tool, shortened, without its name. */
  readonly reason: string;

  constructor(
    message: string,
    { kind, reason, line, numbers = [], ...options }: ErrorOptions & {
      readonly kind: IptablesErrorKind;
      readonly reason: string;
      readonly line?: RefusedLine | undefined;
      readonly numbers?: readonly number[];
    },
  ) {
    super(message, options);
    this.kind = kind;
    this.reason = reason;
    this.numbers = numbers;
    if (line) this.line = line;
  }
}

/** The exit of a tool that failed. */
interface FailedExit {
  readonly program: string;
  readonly code: number;
  readonly stderr: string;
}

/** The input of the tool. */
export interface RestoreInput {
  readonly lines: readonly string[];
  /** Returns the owner of a line, e.g. a Service; lines count from 1. */
  ownerOf?(line: number): string | undefined;
}

/** A process that could not be run to its end. `action` is e.g. `restore rules of iptables`. */
export function errorOfCommand(action: string, error: unknown): unknown {
  if (!(error instanceof CommandError)) return error;
  const isMissing = error.kind === "not-found" || error.kind === "not-permitted";
  return new IptablesError(`Cannot ${action}: ${error.message}`, {
    kind: isMissing ? "unavailable" : "unclear",
    reason: error.message,
    cause: error,
  });
}

/** Returns the error of a failed restore. */
export function errorOfRestore(exit: FailedExit, input: RestoreInput): IptablesError {
  const { program, code } = exit;
  const words = wordsOf(exit.stderr);
  const reason = reasonOf(exit, words);
  if (/xtables lock|Resource temporarily unavailable/.test(words)) {
    return new IptablesError(
      `Cannot restore rules by ${program}: another program held the lock of iptables: ${reason}`,
      { kind: "locked", reason },
    );
  }
  if (saysNotPermitted(words)) {
    return new IptablesError(
      `Cannot restore rules by ${program}: ${reason} (needs root or CAP_NET_ADMIN)`,
      { kind: "unavailable", reason },
    );
  }
  const line = code > 4 ? undefined : refusedLine(words, input);
  if (line === undefined) {
    const message = `Cannot restore rules by ${program}: exit code ${code}: ${reason}`;
    return new IptablesError(message, { kind: "unclear", reason });
  }
  const owner = input.ownerOf?.(line.number);
  const whose = owner === undefined ? "" : ` of ${owner}`;
  return new IptablesError(
    `Cannot restore rules by ${program}: line ${line.number} in table ` +
      `${line.table} "${line.text}"${whose}: ${reason}`,
    { kind: "refused", reason, line, numbers: lineNumbers(words) },
  );
}

/** Returns the error of a failed save, or of a failed look at a chain. */
export function errorOfRead(exit: FailedExit): IptablesError {
  const words = wordsOf(exit.stderr);
  const reason = reasonOf(exit, words);
  const isLocked = exit.code === 4 || /xtables lock/.test(words);
  const kind = isLocked ? "locked" : saysNotPermitted(words) ? "unavailable" : "unclear";
  const message = `Cannot read rules by ${exit.program}: exit code ${exit.code}: ${reason}`;
  return new IptablesError(message, { kind, reason });
}

/** iptables-nft warns so whenever legacy tables exist, also when it did its work. */
function wordsOf(stderr: string): string {
  return stderr.replaceAll(/^# Warning: .*$/gm, "");
}

/** Without the name and version of the program, and without the advice to call for help. */
function reasonOf({ code }: FailedExit, words: string): string {
  const lines = words.split("\n")
    .map((line) => line.replace(/^\S+ v[\d.]+ \(\w+\): /, "").trim())
    .filter((line) => line !== "" && !/^(Error occurred at line|Try `)/.test(line));
  // The kernel's message follows the parser's own.
  return firstLine(lines.join("\n")) || `exit code ${code}, no word why`;
}

function lineNumbers(words: string): number[] {
  return [...words.matchAll(/line:? (\d+)/g)].map(([, number]) => Number(number));
}

function refusedLine(words: string, { lines }: RestoreInput): RefusedLine | undefined {
  let [number] = lineNumbers(words);
  if (number === undefined) return undefined;
  // iptables-nft looks for targets at the COMMIT only, and names its line.
  const missing = /Chain '(\S+)' does not exist/.exec(words)?.[1];
  if (missing !== undefined) {
    const jumpsToMissing = new RegExp(` -[jg] ${RegExp.escape(missing)}( |$)`);
    for (let above = Math.min(number, lines.length); above > 0; above--) {
      if (!jumpsToMissing.test(lines[above - 1]!)) continue;
      number = above;
      break;
    }
  }
  const text = lines[number - 1];
  if (text === undefined) return undefined;
  const start = lines.findLast((line, index) => index < number && line.startsWith("*"));
  return { number, text, table: start?.slice(1) ?? "?" };
}
