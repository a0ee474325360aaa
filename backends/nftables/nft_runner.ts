/**
 * Runs `nft` for the table of one IP family.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { CommandResult, CommandRunner } from "../../lib/os/command_runner.ts";
import type { TableReading } from "./applied_table.ts";
import { type Chain, TABLE } from "./base_chains.ts";
import type { FoundTable } from "./found_table.ts";
import { EXPRESSIONS } from "./expressions.ts";
import {
  errorOfCommand,
  errorOfRead,
  errorOfWrite,
  type NftInput,
  saysNotFound,
} from "./nft_error.ts";
import { type Listed, readWhole } from "./read_whole.ts";
import { type RuleCode, RuleCodeListing, trialText } from "./rule_code.ts";
import { TableListing } from "./table_listing.ts";

/** Text for `nft -f -`, and whom its lines are for. */
interface NftText extends NftInput {
  /** The lines, in pieces. */
  text(): Iterable<string>;
}

/** 44,000 Services take two seconds, on a busy machine many. */
const WRITE_TIMEOUT_MS = 120_000;
const READ_TIMEOUT_MS = 120_000;
const LOOK_TIMEOUT_MS = 15_000;
/** Says what it would tell the kernel, and writes nothing. */
const JUDGE = ["--check", "--debug=netlink", "-f", "-"];
const CHAIN_LINE = /^\tchain (\S+) \{(?: # handle (\d+))?/;

/** The program. All methods throw an NftError. */
export class NftRunner {
  readonly #commands: CommandRunner;
  readonly #ipFamily: IpFamily;
  readonly #family: "ip" | "ip6";

  constructor({ commands }: { readonly commands: CommandRunner }, family: IpFamily) {
    this.#commands = commands;
    this.#ipFamily = family;
    this.#family = EXPRESSIONS[family].table;
  }

  /** Everything in the table; `undefined` = there is none. Takes a second at 10,000 Services. */
  async read(): Promise<TableReading | undefined> {
    return await this.#list(["list", "table", this.#family, TABLE]);
  }

  async #list(args: readonly string[]): Promise<TableReading | undefined> {
    return await readWhole(() => {
      const listing = new TableListing();
      return this.#listInto(listing, args, (line) => listing.take(line));
    });
  }

  /**
   * Like {@linkcode read}, with the instructions of the rules, in one run. Protocols are numbers, also in
   * the printed rules: nft 1.0.6 looks up each name in a file, which takes a quarter of the time.
   */
  async readWithCode(): Promise<FoundTable | undefined> {
    const args = ["--debug=netlink", "--numeric-protocol", "list", "table", this.#family, TABLE];
    return await readWhole(async () => {
      const listing = new TableListing();
      const code = new RuleCodeListing(this.#ipFamily, TABLE);
      let isListing = false;
      const { reading, isTorn } = await this.#listInto(listing, args, (line) => {
        // The instructions come first, then the table in its usual form.
        isListing ||= line.startsWith("table ");
        code.take(line);
        if (isListing) listing.take(line);
      });
      const { containers: kinds, isDormant } = code;
      return { reading: reading && { ...reading, code: code.code, kinds, isDormant }, isTorn };
    });
  }

  async #listInto(
    listing: TableListing,
    args: readonly string[],
    onLine: (line: string) => void,
  ): Promise<Listed<TableReading | undefined>> {
    const { code, stderr } = await this.#run("read the table of nftables", args, {
      timeoutMs: READ_TIMEOUT_MS,
      onLine,
    });
    if (code !== 0) {
      if (saysNotFound(stderr)) return { reading: undefined, isTorn: false };
      throw errorOfRead({ code, stderr });
    }
    return { reading: this.#endOf(listing, code), isTorn: listing.isTorn };
  }

  /** How the rules of each chain are printed, with names for all; `undefined` = there is no table. */
  async readRules(): Promise<FoundTable["rules"] | undefined> {
    return (await this.#list(["--terse", "list", "table", this.#family, TABLE]))?.rules;
  }

  /** What rules would do. They are judged and thrown away: nothing is written. */
  async ruleCode(chains: readonly Chain[]): Promise<RuleCode> {
    const listing = new RuleCodeListing(this.#ipFamily);
    const { code, stderr } = await this.#run("have rules of nftables judged", JUDGE, {
      timeoutMs: READ_TIMEOUT_MS,
      stdin: trialText(this.#ipFamily, chains),
      onLine: (line) => listing.take(line),
    });
    if (code !== 0) throw errorOfRead({ code, stderr });
    return listing.code;
  }

  /**
   * The chains of the table by name, each with the handle that the kernel gave it when it was made;
   * tables that come out of one text in another order have others. Of all listings of nft 1.0.6 that need no rights to the
   * elements, the only one that does not load them first (5 ms against 3 s at 44,000 Services). It
   * prints the chains of others too, which are passed over.
   */
  async chains(): Promise<ReadonlyMap<string, string>> {
    const handles = new Map<string, string>();
    let isOurs = false;
    const args = ["--handle", "list", "chains", this.#family];
    const { code, stderr } = await this.#run("look for the table of nftables", args, {
      timeoutMs: LOOK_TIMEOUT_MS,
      onLine: (line) => {
        if (line.startsWith("table ")) isOurs = line === `table ${this.#family} ${TABLE} {`;
        const [, name, handle = ""] = isOurs ? CHAIN_LINE.exec(line) ?? [] : [];
        if (name !== undefined) handles.set(name, handle);
      },
    });
    if (code !== 0) throw errorOfRead({ code, stderr });
    return handles;
  }

  /** Whether one of our sets or maps has a key. */
  async hasElement(container: string, key: string): Promise<boolean> {
    return await this.element(container, key) !== undefined;
  }

  /** What is printed of one element of our sets and maps; `undefined` = there is none. */
  async element(container: string, key: string): Promise<string | undefined> {
    const args = ["get", "element", this.#family, TABLE, container, `{ ${key} }`];
    const { code, stdout, stderr } = await this.#run("look for an element of nftables", args, {
      timeoutMs: LOOK_TIMEOUT_MS,
    });
    if (code === 0) return stdout;
    if (saysNotFound(stderr)) return undefined;
    throw errorOfRead({ code, stderr });
  }

  /** Applies a text: all of it or nothing. */
  async write(input: NftText): Promise<void> {
    const { code, stderr } = await this.#run("write the table of nftables", ["-f", "-"], {
      timeoutMs: WRITE_TIMEOUT_MS,
      stdin: input.text(),
    });
    if (code !== 0) throw errorOfWrite({ code, stderr }, input);
  }

  #endOf(listing: TableListing, code: number): TableReading {
    try {
      return listing.end();
    } catch (cause) {
      throw errorOfRead({ code, stderr: cause instanceof Error ? cause.message : "" });
    }
  }

  async #run(
    action: string,
    args: readonly string[],
    options: Parameters<CommandRunner["run"]>[2],
  ): Promise<CommandResult> {
    try {
      return await this.#commands.run("nft", args, options);
    } catch (error) {
      throw errorOfCommand(action, error);
    }
  }
}
