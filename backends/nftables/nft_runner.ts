/**
 * Runs `nft` for the table of one IP family.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { CommandResult, CommandRunner } from "../../lib/os/command_runner.ts";
import type { TableReading } from "./applied_table.ts";
import { TABLE } from "./base_chains.ts";
import { EXPRESSIONS } from "./expressions.ts";
import {
  errorOfCommand,
  errorOfRead,
  errorOfWrite,
  type NftInput,
  saysNotFound,
} from "./nft_error.ts";
import { TableListing } from "./table_listing.ts";

/** Text for `nft -f -`, and whom its lines are for. */
export interface NftText extends NftInput {
  /** The lines, in pieces. */
  text(): Iterable<string>;
}

/** 44,000 Services take two seconds, on a busy machine many. */
const WRITE_TIMEOUT_MS = 120_000;
const READ_TIMEOUT_MS = 120_000;
const LOOK_TIMEOUT_MS = 15_000;

/** The program. All methods throw an NftError. */
export class NftRunner {
  readonly #commands: CommandRunner;
  readonly #family: "ip" | "ip6";

  constructor({ commands }: { readonly commands: CommandRunner }, family: IpFamily) {
    this.#commands = commands;
    this.#family = EXPRESSIONS[family].table;
  }

  /** Everything in the table; `undefined` = there is none. Takes a second at 10,000 Services. */
  async read(): Promise<TableReading | undefined> {
    const listing = new TableListing();
    const args = ["list", "table", this.#family, TABLE];
    const { code, stderr } = await this.#run("read the table of nftables", args, {
      timeoutMs: READ_TIMEOUT_MS,
      onLine: (line) => listing.take(line),
    });
    if (code !== 0) {
      if (saysNotFound(stderr)) return undefined;
      throw errorOfRead({ code, stderr });
    }
    try {
      return listing.end();
    } catch (cause) {
      throw errorOfRead({ code, stderr: cause instanceof Error ? cause.message : "" });
    }
  }

  /**
   * The names of the chains of the table: of all listings of nft 1.0.6 that need no rights to the
   * elements, the only one that does not load them first (5 ms against 3 s at 44,000 Services). It
   * prints the chains of others too, which are passed over.
   */
  async chains(): Promise<ReadonlySet<string>> {
    const names = new Set<string>();
    let isOurs = false;
    const args = ["list", "chains", this.#family];
    const { code, stderr } = await this.#run("look for the table of nftables", args, {
      timeoutMs: LOOK_TIMEOUT_MS,
      onLine: (line) => {
        if (line.startsWith("table ")) isOurs = line === `table ${this.#family} ${TABLE} {`;
        const name = isOurs ? /^\tchain (\S+) \{/.exec(line)?.[1] : undefined;
        if (name !== undefined) names.add(name);
      },
    });
    if (code !== 0) throw errorOfRead({ code, stderr });
    return names;
  }

  /** Applies a text: all of it or nothing. */
  async write(input: NftText): Promise<void> {
    const { code, stderr } = await this.#run("write the table of nftables", ["-f", "-"], {
      timeoutMs: WRITE_TIMEOUT_MS,
      stdin: input.text(),
    });
    if (code !== 0) throw errorOfWrite({ code, stderr }, input);
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
