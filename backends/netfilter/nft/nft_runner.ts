/**
 * Runs `nft` for one table, and explains why it failed. The only module that reads its messages.
 *
 * @module
 */
import {
  CommandError,
  type CommandResult,
  type CommandRunner,
} from "../../../lib/os/command_runner.ts";
import type { NftChain, NftTable, NftTableSpec } from "./nft_objects.ts";
import { MOST_HELD_CHARACTERS } from "./held_nft.ts";
import { NftDraft, NftTransaction, type OwnerOfLine } from "./nft_transaction.ts";
import { readObjectHead, readTableHead, TableListing, type TableReading } from "./table_listing.ts";
import { askTool, firstLine, saysNotPermitted, type Seen } from "../probe/try_tool.ts";

/** A table, and what its rules do. */
export interface CodedTable extends TableReading {
  readonly code: RuleCode;
}

/**
 * 44,000 Services take two seconds, on a busy machine many. A hanging nft delays every change until
 * then: with the time of a held one before it, a node is late by less than 90 seconds.
 */
const WRITE_TIMEOUT_MS = 60_000;
const READ_TIMEOUT_MS = 60_000;
const LOOK_TIMEOUT_MS = 15_000;
const CODE_FLAG = "--debug=netlink";
/** Prints the instructions for the kernel, and writes nothing. */
const JUDGE = ["--check", CODE_FLAG, "-f", "-"];
/**
 * Listings of a table that the kernel may tear. It keeps elements in hash tables. After a commit it may
 * resize one in the background, within milliseconds, which also changes the order of its elements. A
 * listing of some hundred elements takes several messages, and each of them skips as many elements as
 * were sent before. So a resize between two messages repeats some elements and leaves as many out.
 * Neither the generation of the rules nor nft notices (seen with Linux 6.18 and nft 1.0.6 on a busy
 * machine). A listing may also end early: it then lacks the rules of the last chains. This cannot be
 * noticed here, so callers trust a difference only if a second listing shows it too.
 */
const MAX_READINGS = 5;

/**
 * Lists the names of all tables, through their flowtables: for `list tables`, nft 1.0.6 reads every
 * rule, including iptables-nft's, which takes seconds of CPU at 10,000 Services.
 */
export async function listNftTables(
  commands: CommandRunner,
  options: { readonly signal?: AbortSignal } = {},
): Promise<Seen<readonly NftTable[]>> {
  const seen = await askTool(commands, ["nft", "list", "flowtables"], options);
  if (seen.state !== "seen") return seen;
  return { ...seen, value: seen.value.split("\n").flatMap((line) => readTableHead(line) ?? []) };
}

/** The program. All methods throw an NftError. */
export class NftRunner {
  readonly #commands: CommandRunner;
  readonly #table: NftTable;
  /** The name of the table in errors. */
  readonly #words: string;

  constructor({ commands }: { readonly commands: CommandRunner }, { family, name }: NftTable) {
    this.#commands = commands;
    this.#table = { family, name };
    this.#words = `table ${family} ${name} of nftables`;
  }

  /**
   * Reads the whole table, with the instructions of its rules, until each element is listed once at most,
   * a few times at most; `undefined` = it does not exist. Takes a second at 10,000 Services. Protocols are
   * numbers, also in the printed rules: nft 1.0.6 looks up each name in a file, which takes a quarter of
   * the time.
   */
  async readWithCode(): Promise<CodedTable | undefined> {
    const { family, name } = this.#table;
    const args = [CODE_FLAG, "--numeric-protocol", "list", "table", family, name];
    for (let readings = 1;; readings++) {
      const listing = new TableListing();
      const code = new RuleCodeListing(this.#table);
      // The instructions come first, then the table in its usual form.
      let isListing = false;
      const result = await this.#run(`read ${this.#words}`, args, {
        timeoutMs: READ_TIMEOUT_MS,
        onLine: (line) => {
          isListing ||= line.startsWith("table ");
          code.take(line);
          if (isListing) listing.take(line);
        },
      });
      if (result.code !== 0) {
        if (saysNotFound(result.stderr)) return undefined;
        throw errorOfRead(result);
      }
      let reading: TableReading;
      try {
        reading = listing.end();
      } catch (cause) {
        throw errorOfRead({ ...result, stderr: cause instanceof Error ? cause.message : "" });
      }
      if (!listing.isTorn || readings === MAX_READINGS) return { ...reading, code: code.code };
    }
  }

  /**
   * Returns the instructions of rules with these sets and maps. The kernel only checks them;
   * nothing is written. They are in chains of a table that the kernel discards, without hooks, because
   * the kernel must not use them during the check.
   */
  async ruleCode(
    { containers }: Pick<NftTableSpec, "containers">,
    chains: readonly NftChain[],
    ownerOf?: OwnerOfLine,
  ): Promise<RuleCode> {
    const listing = new RuleCodeListing(this.#table, { isTrial: true });
    const draft = new NftDraft({ ownerOf });
    draft.declared.push(...containers.keys());
    draft.chains.push(...chains.map((chain) => ({ ...chain, hook: undefined })));
    const trial = draft.transaction({ ...trialTable(this.#table), containers });
    const result = await this.#run("have rules of nftables judged", JUDGE, {
      timeoutMs: READ_TIMEOUT_MS,
      stdin: trial.text(),
      onLine: (line) => listing.take(line),
    });
    if (result.code !== 0) throw errorOfWrite(result, trial);
    return listing.code;
  }

  /**
   * Returns the chains of the table by name, each with its handle. The kernel assigns handles at
   * creation, so tables that are created from one text in another order have other handles. This is
   * the only listing of nft 1.0.6 that needs no rights to the elements and does not load them first
   * (5 ms instead of 3 s at 44,000 Services). It prints foreign chains too, which are skipped.
   */
  async chains(): Promise<ReadonlyMap<string, string>> {
    return await this.#listChains() ?? new Map();
  }

  /** Whether there is such a table. Costs the same at any number of elements. */
  async isThere(): Promise<boolean> {
    return await this.#listChains() !== undefined;
  }

  async #listChains(): Promise<ReadonlyMap<string, string> | undefined> {
    const { family, name } = this.#table;
    let chains: Map<string, string> | undefined;
    let isOurs = false;
    const args = ["--handle", "list", "chains", family];
    const result = await this.#run(`look for ${this.#words}`, args, {
      timeoutMs: LOOK_TIMEOUT_MS,
      onLine: (line) => {
        const table = readTableHead(line);
        if (table) isOurs = table.name === name && table.family === family;
        if (!isOurs) return;
        chains ??= new Map();
        const head = readObjectHead(line);
        if (head?.kind === "chain") chains.set(head.name, head.handle ?? "");
      },
    });
    if (result.code !== 0) throw errorOfRead(result);
    return chains;
  }

  /** Returns the printed form of one element of a set or map; `undefined` = it does not exist. */
  async element(container: string, key: string): Promise<string | undefined> {
    const { family, name } = this.#table;
    const args = ["get", "element", family, name, container, `{ ${key} }`];
    const result = await this.#run("look for an element of nftables", args, {
      timeoutMs: LOOK_TIMEOUT_MS,
    });
    if (result.code === 0) return result.stdout;
    if (saysNotFound(result.stderr)) return undefined;
    throw errorOfRead(result);
  }

  /** Returns the packets that the counter of a chain has counted; `undefined` = no rule has a counter. */
  async packetsOf(chain: string): Promise<number | undefined> {
    const { family, name } = this.#table;
    const args = ["--terse", "list", "chain", family, name, chain];
    const result = await this.#run("read a counter of nftables", args, {
      timeoutMs: LOOK_TIMEOUT_MS,
    });
    if (result.code !== 0 && !saysNotFound(result.stderr)) throw errorOfRead(result);
    const [, packets] = /^\t\tcounter packets (\d+) /m.exec(result.stdout) ?? [];
    return packets === undefined ? undefined : Number(packets);
  }

  /** Applies a text atomically. One that is small is given as a whole; see `held_nft.ts`. */
  async write(input: NftTransaction): Promise<void> {
    const pieces = input.text();
    const characters = pieces.reduce((sum, { length }) => sum + length, 0);
    const result = await this.#run(`write ${this.#words}`, ["-f", "-"], {
      timeoutMs: WRITE_TIMEOUT_MS,
      // Elements of one set are a piece of their own, however few.
      stdin: characters <= MOST_HELD_CHARACTERS ? pieces.join("") : pieces,
    });
    if (result.code !== 0) throw errorOfWrite(result, input);
  }

  /** Deletes the table, if it exists. */
  async remove(): Promise<void> {
    const transaction = new NftTransaction(this.#table);
    // Adding an existing table changes nothing, but deleting a missing one would fail.
    for (const verb of ["add", "delete"]) transaction.add(`${verb} table`);
    await this.write(transaction);
  }

  async #run(
    action: string,
    args: readonly string[],
    options: Parameters<CommandRunner["run"]>[2],
  ): Promise<CommandResult & NftFailure> {
    try {
      return { ...await this.#commands.run("nft", args, options), action };
    } catch (error) {
      throw errorOfCommand(action, error);
    }
  }
}

/**
 * `refused`: lines of the input were refused, and none of it was applied. `unavailable`: the
 * program is missing or may not be used. `unclear`: it hung, was killed, or printed an unknown
 * message; its effect is unknown.
 */
type NftErrorKind = "refused" | "unavailable" | "unclear";

/** A line that was refused. */
interface RefusedLine {
  /** From 1. */
  readonly number: number;
  readonly reason: string;
  readonly text?: string | undefined;
  readonly owner?: string | undefined;
}

/** A failure of nft. */
export class NftError extends Error {
  override name = "NftError";
  readonly kind: NftErrorKind;
  /** Every line that the tool named. */
  readonly lines: readonly RefusedLine[];

  constructor(
    message: string,
    { kind, lines = [], ...options }: ErrorOptions & {
      readonly kind: NftErrorKind;
      readonly lines?: readonly RefusedLine[];
    },
  ) {
    super(message, options);
    this.kind = kind;
    this.lines = lines;
  }
}

/** The attempted action, e.g. `write table ip kube-relay of nftables`, and the exit of the tool. */
type NftFailure = Pick<CommandResult, "code" | "stderr"> & { readonly action: string };

/** A process that could not be run to its end. */
function errorOfCommand(action: string, error: unknown): unknown {
  if (!(error instanceof CommandError)) return error;
  const isMissing = error.kind === "not-found" || error.kind === "not-permitted";
  const kind = isMissing ? "unavailable" : "unclear";
  return new NftError(`Cannot ${action}: ${error.message}`, { kind, cause: error });
}

/** Returns the error of a tool that did not accept its input. */
function errorOfWrite(failure: NftFailure, input: NftTransaction): NftError {
  const { action, code, stderr } = failure;
  if (saysNotPermitted(stderr)) {
    const message = `Cannot ${action}: ${firstLine(stderr)} (needs root or CAP_NET_ADMIN)`;
    return new NftError(message, { kind: "unavailable" });
  }
  const texts = input.toLines();
  const refused = [...stderr.matchAll(/^\S+?:(\d+):[\d-]+: Error: (.*)$/gm)];
  const lines = refused.flatMap(([, digits, reason = ""]) => {
    // The parser gives line 0 to errors that it finds after the end.
    const number = Number(digits);
    const text = texts[number - 1]?.trim();
    return text === undefined ? [] : [{ number, reason, text, owner: input.ownerOf(number) }];
  });
  const [first] = lines;
  // nft exits with 1 if it refuses the input. A signal or a failed assertion gives another status.
  if (code !== 1 || first === undefined) return errorOfRead(failure);
  const { owner, text } = first;
  const message = `Cannot ${action}: line ${first.number} "${text}"` +
    `${owner === undefined ? "" : ` of ${owner}`}: ${first.reason}`;
  return new NftError(message, { kind: "refused", lines });
}

/** The error of a tool that did not list something. */
function errorOfRead({ action, code, stderr }: NftFailure): NftError {
  const kind = saysNotPermitted(stderr) ? "unavailable" : "unclear";
  const reason = firstLine(stderr) || "no word why";
  return new NftError(`Cannot ${action}: exit code ${code}: ${reason}`, { kind });
}

/** Whether the listed object does not exist. */
function saysNotFound(stderr: string): boolean {
  return /No such file or directory/.test(stderr);
}

/** The instructions of each rule, by chain; a chain without rules may be left out. */
type RuleCode = ReadonlyMap<string, readonly string[]>;

/** The kernel adds them to every rule: addresses and ports from a range are set. */
const RANGE_FLAGS = 0x3;

/**
 * Collects the instructions of written or listed rules from the output of `--debug=netlink`, line
 * by line.
 */
export class RuleCodeListing {
  readonly #head: string;
  readonly #isTrial: boolean;
  readonly #code = new Map<string, string[]>();
  #rules: string[] | undefined;

  /** `isTrial`: of the table that {@linkcode trialTable} names. @default {false} */
  constructor(table: NftTable, { isTrial = false }: { readonly isTrial?: boolean } = {}) {
    const { family, name } = isTrial ? trialTable(table) : table;
    this.#head = `${family} ${name} `;
    this.#isTrial = isTrial;
  }

  /** The instructions of all rules. */
  get code(): RuleCode {
    return this.#code;
  }

  /** Parses the next line, without its line feed. */
  take(line: string): void {
    // Most lines are elements.
    if (line.startsWith("\t\t") || line.startsWith("\telement ")) return;
    const instruction = /^ {2}(\[ .* \])$/.exec(line)?.[1];
    if (instruction !== undefined) {
      const last = (this.#rules?.length ?? 0) - 1;
      if (this.#rules) this.#rules[last] += `${normalInstruction(instruction)}\n`;
    } else if (line.startsWith(this.#head)) {
      const [name = "", word] = line.slice(this.#head.length).split(" ", 2);
      // nft 1.1 prints the chains that it creates too, as `ip kube-relay services use 0`; nft 1.0.6
      // prints them without their table and name.
      if (word === "use") this.#rules = undefined;
      else this.#begin(name);
    } else this.#rules = undefined;
  }

  /** A rule of a chain, or the elements of a set. */
  #begin(chain: string): void {
    // Another program changed the rules meanwhile: nft discarded its data and starts again.
    if (!this.#isTrial && chain.startsWith("@") && this.#code.has(chain)) this.#code.clear();
    this.#rules = this.#code.get(chain) ?? [];
    this.#rules.push("");
    this.#code.set(chain, this.#rules);
  }
}

function trialTable({ family, name }: NftTable): NftTable {
  return { family, name: `${name}-compare` };
}

/** The kernel prints values in full that were given in short. */
function normalInstruction(text: string): string {
  if (text.startsWith("[ nat ")) {
    return text.replaceAll(/ (?:addr|proto)_max reg \d+/g, "").replace(
      / flags 0x([0-9a-f]+)(?= )/,
      (_, flags: string) => {
        const chosen = parseInt(flags, 16) & ~RANGE_FLAGS;
        return chosen === 0 ? "" : ` flags 0x${chosen.toString(16)}`;
      },
    );
  }
  if (text.startsWith("[ counter ")) return "[ counter ]";
  if (text.startsWith("[ lookup ")) return text.replace(/ 0x0 \]$/, " ]");
  if (text.startsWith("[ dynset ")) return text.replace(/ timeout 0ms(?= )/, "");
  return text;
}
