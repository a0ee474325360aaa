/**
 * Runs the programs of one variant of iptables, for one IP family. With the text of rules
 * and input (`iptables_objects.ts`) and of dumps (`iptables_save.ts`) the toolkit
 * of every controller that writes chains of its own. The only file that reads the messages of
 * `iptables-restore` and `iptables-save`.
 *
 * @module
 */
import {
  CommandError,
  type CommandResult,
  type CommandRunner,
} from "../../../lib/os/command_runner.ts";
import { inPieces } from "../../../lib/os/command_input.ts";
import type { IptablesTable } from "./iptables_objects.ts";
import type { IptablesPrograms } from "./iptables_variant.ts";
import { IptablesSave, parseSaveLine, type SavedTables } from "./iptables_save.ts";
import { isAtLeast, parseVersion } from "../probe/tool_version.ts";
import { firstLine, saysNotPermitted } from "../probe/try_tool.ts";

/** Longest wait for `/run/xtables.lock`; the legacy tools would wait for ever. */
const LOCK_WAIT_S = 5;
/** kube-proxy's 20,000 chains take iptables-nft seconds to remove, on a busy machine many. */
const RESTORE_TIMEOUT_MS = 120_000;
/** 10,000 Services of kube-proxy are 10 MB; iptables-nft prints them in 0.7 s. */
const SAVE_TIMEOUT_MS = 60_000;
const LOOK_TIMEOUT_MS = 15_000;
/** The rule does not exist, or its chain or the target does not. */
const ABSENT = /does a matching rule exist|does not exist|No chain\/target\/match by that name/;
/** Older ones have no lock to wait for in `iptables-restore`. */
const FIRST_WITH_WAIT = [1, 6, 2];

/**
 * `refused`: a line of the input was. `locked`: another program held the lock for too long.
 * `unavailable`: the program is missing or may not be used. `unclear`: it hung, was killed, or
 * printed an unknown message.
 */
type IptablesErrorKind = "locked" | "refused" | "unavailable" | "unclear";

/** The line that was refused. */
export interface RefusedLine {
  /** The number of the line, from 1. */
  readonly number: number;
  readonly text: string;
  readonly table: IptablesTable;
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

/** The input of the tool. */
interface RestoreInput {
  readonly lines: readonly string[];
  /** Returns the owner of a line, e.g. a Service. */
  ownerOf?(line: RefusedLine): string | undefined;
}

/** The programs. All methods throw an IptablesError. */
export class IptablesRunner {
  readonly #commands: CommandRunner;
  readonly #programs: IptablesPrograms;
  readonly #wait: readonly string[];

  constructor(
    { commands }: { readonly commands: CommandRunner },
    programs: IptablesPrograms,
  ) {
    this.#commands = commands;
    this.#programs = programs;
    const version = parseVersion(programs.version);
    const canWait = version === undefined || isAtLeast(version, FIRST_WITH_WAIT);
    this.#wait = canWait ? ["-w", `${LOCK_WAIT_S}`] : [];
  }

  /** Reads all rules, by one process. `mayLack`: a table may be one that the tool cannot print. */
  async save(options: { readonly mayLack?: boolean } = {}): Promise<SavedTables> {
    const { save: program } = this.#programs;
    const tables = new IptablesSave();
    const action = "read rules of iptables";
    const { code, stderr } = await this.#run(action, [program], {
      timeoutMs: SAVE_TIMEOUT_MS,
      onLine: (line) => tables.take(line),
    });
    if (code !== 0) throw errorOfRead({ program, code, stderr });
    try {
      return tables.end(options);
    } catch (cause) {
      throw errorOfRead({ program, code, stderr: cause instanceof Error ? cause.message : "" });
    }
  }

  /** Applies lines and keeps chains that they do not name. Each table is applied completely or not at all. */
  async restore(input: RestoreInput): Promise<void> {
    const { restore: program } = this.#programs;
    const line = [program, ...this.#wait, "--noflush"] as const;
    const action = "restore rules of iptables";
    const { code, stderr } = await this.#run(action, line, {
      timeoutMs: RESTORE_TIMEOUT_MS,
      stdin: inPieces(input.lines),
    });
    if (code !== 0) throw errorOfRestore({ program, code, stderr }, input);
  }

  /**
   * Whether a chain exists and has a rule. In a large table of iptables-legacy this copies the
   * whole table.
   */
  async hasRules(table: IptablesTable, chain: string): Promise<boolean> {
    return (await this.rulesOf(table, chain) ?? []).length > 0;
  }

  /** The rules of one chain as they are printed, without `-A` and its name; `undefined` = no such. */
  async rulesOf(table: IptablesTable, chain: string): Promise<readonly string[] | undefined> {
    const text = await this.#list(["-t", table, "-S", chain]);
    const lines = text?.split("\n").map(parseSaveLine);
    return lines?.flatMap((line) => line?.kind === "rule" ? [line.rule] : []);
  }

  /** Returns the packets that the first rule of a chain has matched; `undefined` = there is no rule. */
  async packetsOf(table: IptablesTable, chain: string): Promise<number | undefined> {
    const text = await this.#list(["-t", table, "-v", "-S", chain]);
    const [, packets] = / -c (\d+) \d+/.exec(/^-A .*$/m.exec(text ?? "")?.[0] ?? "") ?? [];
    return packets === undefined ? undefined : Number(packets);
  }

  async #list(args: readonly string[]): Promise<string | undefined> {
    const program = this.#programs.restore.replace(/-restore$/, "");
    const line = [program, "-w", `${LOCK_WAIT_S}`, ...args] as const;
    const { code, stdout, stderr } = await this.#run("look at a chain of iptables", line, {
      timeoutMs: LOOK_TIMEOUT_MS,
    });
    if (code === 0) return stdout;
    // What iptables-nft says of a chain that is missing is that it could not read it.
    if (code === 1) return undefined;
    throw errorOfRead({ program, code, stderr });
  }

  /**
   * Whether a rule exists, even in a table that cannot be printed. iptables-nft compares it with
   * each rule of the chain, and skips rules that it does not understand.
   */
  async hasRule(
    table: IptablesTable,
    { chain, rule }: { readonly chain: string; readonly rule: string },
  ): Promise<boolean> {
    const { restore: program } = this.#programs;
    const line = [program, ...this.#wait, "--noflush"] as const;
    const { code, stderr } = await this.#run("look for a rule of iptables", line, {
      timeoutMs: LOOK_TIMEOUT_MS,
      stdin: `*${table}\n-C ${chain} ${rule}\nCOMMIT\n`,
    });
    if (code === 0) return true;
    if (ABSENT.test(stderr)) return false;
    throw errorOfRead({ program, code, stderr });
  }

  async #run(
    action: string,
    [program, ...args]: readonly [string, ...string[]],
    options: Parameters<CommandRunner["run"]>[2],
  ): Promise<CommandResult> {
    try {
      return await this.#commands.run(program, args, options);
    } catch (error) {
      if (!(error instanceof CommandError)) throw error;
      const isMissing = error.kind === "not-found" || error.kind === "not-permitted";
      throw new IptablesError(`Cannot ${action}: ${error.message}`, {
        kind: isMissing ? "unavailable" : "unclear",
        reason: error.message,
        cause: error,
      });
    }
  }
}

/** The exit of a tool that failed. */
interface FailedExit {
  readonly program: string;
  readonly code: number;
  readonly stderr: string;
}

/** Returns the error of a failed restore. */
function errorOfRestore(exit: FailedExit, input: RestoreInput): IptablesError {
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
  const owner = input.ownerOf?.(line);
  const whose = owner === undefined ? "" : ` of ${owner}`;
  return new IptablesError(
    `Cannot restore rules by ${program}: line ${line.number} in table ` +
      `${line.table} "${line.text}"${whose}: ${reason}`,
    { kind: "refused", reason, line, numbers: lineNumbers(words) },
  );
}

/** Returns the error of a failed save, or of a failed look at a chain. */
function errorOfRead(exit: FailedExit): IptablesError {
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
  return { number, text, table: start?.slice(1) as IptablesTable };
}
