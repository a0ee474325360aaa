import { inPieces } from "../../lib/os/command_input.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { reasonOfExit, saysNotPermitted } from "./probe/try_tool.ts";

/** A batch whose input the program refused. How much of it was applied is unknown. */
export class BatchRefusal extends Error {
  override name = "BatchRefusal";
  /** The line that the program named, from 1. */
  readonly line: number | undefined;
  /** Lines that the program wrote to its standard error. */
  readonly complaints: number;

  constructor(message: string, { line, complaints }: Pick<BatchRefusal, "complaints" | "line">) {
    super(message);
    this.line = line;
    this.complaints = complaints;
  }
}

/** A batch for a program. */
interface ToolBatch {
  readonly command: readonly [program: string, ...args: string[]];
  readonly lines: readonly string[];
  readonly timeoutMs: number;
  /**
   * Whether any message on standard error is a refusal, regardless of the exit code. @default
   * {false}
   */
  readonly complainsOnly?: boolean;
}

/** Messages about the machine or this process, regardless of the line. */
const NOT_OF_A_LINE = /Can't initialize ipvs|Cannot open netlink|Cannot talk to/;

/**
 * Runs a batch. Throws a BatchRefusal where the input was refused, an Error where the program may not
 * do anything at all.
 */
export async function runBatch(
  commands: CommandRunner,
  { command, lines, timeoutMs, complainsOnly = false }: ToolBatch,
): Promise<void> {
  const [program, ...args] = command;
  const result = await commands.run(program, args, { timeoutMs, stdin: inPieces(lines) });
  const { code, stderr } = result;
  if (code === 0 && !(complainsOnly && stderr.trim() !== "")) return;
  const line = refusedLine(stderr);
  const text = line === undefined ? undefined : lines[line - 1];
  const where = text === undefined ? "" : `, line ${line} '${text}'`;
  const message = `Cannot run '${command.join(" ")}'${where}: ${reasonOfExit(program, result)}`;
  if (saysNotPermitted(stderr) || NOT_OF_A_LINE.test(stderr)) throw new Error(message);
  throw new BatchRefusal(message, {
    line: text === undefined ? undefined : line,
    complaints: stderr.split("\n").filter((each) => each.trim() !== "").length,
  });
}

/** The line, from 1, that `ipset restore` or `ip -batch` complains of, where it names one. */
export function refusedLine(words: string): number | undefined {
  const line = /(?:line |failed -:)(\d+)/.exec(words)?.[1];
  return line === undefined ? undefined : Number(line);
}
