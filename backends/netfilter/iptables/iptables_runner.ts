/**
 * Runs the programs of one variant of iptables, for one IP family. With the text of rules
 * and input (`iptables_objects.ts`) and of dumps (`iptables_save.ts`) the toolkit
 * of every controller that writes chains of its own.
 *
 * @module
 */
import type { CommandResult, CommandRunner } from "../../../lib/os/command_runner.ts";
import { inPieces } from "../../../lib/os/command_input.ts";
import type { IptablesTable } from "./iptables_objects.ts";
import type { IptablesPrograms } from "./iptables_variant.ts";
import { IptablesSave, parseSaveLine, type SavedTables } from "./iptables_save.ts";
import { isAtLeast, parseVersion } from "../probe/tool_version.ts";
import { errorOfCommand, errorOfRead, errorOfRestore, type RestoreInput } from "./restore_error.ts";

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
      throw errorOfCommand(action, error);
    }
  }
}
