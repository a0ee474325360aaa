/**
 * Runs `nft` for the table that counts. All methods throw an NftError.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { CountingListing, type CountingReading } from "./counting_listing.ts";
import {
  COUNTING_TABLE,
  type CountingChanges,
  countingRemoval,
  countingText,
} from "./counting_table.ts";
import { EXPRESSIONS } from "./expressions.ts";
import { errorOfCommand, errorOfRead, errorOfWrite, saysNotFound } from "./nft_error.ts";
import { readWhole } from "./read_whole.ts";

const TIMEOUT_MS = 120_000;

/** The program, for the table of one IP family. */
export class CountingRunner {
  readonly #commands: CommandRunner;
  readonly #family: IpFamily;

  constructor({ commands }: { readonly commands: CommandRunner }, family: IpFamily) {
    this.#commands = commands;
    this.#family = family;
  }

  /** Everything in it; `undefined` = there is none. Takes half a second at 10,000 Services. */
  async read(): Promise<CountingReading | undefined> {
    const args = ["list", "table", EXPRESSIONS[this.#family].table, COUNTING_TABLE];
    return await readWhole(async () => {
      const listing = new CountingListing();
      const { code, stderr } = await this.#run(args, { onLine: (line) => listing.take(line) });
      if (code === 0) return { reading: listing.end(), isTorn: listing.isTorn };
      if (saysNotFound(stderr)) return { reading: undefined, isTorn: false };
      throw errorOfRead({ code, stderr });
    });
  }

  /** Whether it is there. Costs the same at any number of Services. */
  async isThere(): Promise<boolean> {
    const { table } = EXPRESSIONS[this.#family];
    let isThere = false;
    const { code, stderr } = await this.#run(["list", "chains", table], {
      onLine: (line) => {
        if (line === `table ${table} ${COUNTING_TABLE} {`) isThere = true;
      },
    });
    if (code !== 0) throw errorOfRead({ code, stderr });
    return isThere;
  }

  /** Applies changes: all of them or none. */
  async write(changes: CountingChanges): Promise<void> {
    await this.#give(() => countingText(this.#family, changes));
  }

  /** Takes the table away, if it is there. */
  async remove(): Promise<void> {
    await this.#give(() => [countingRemoval(this.#family)]);
  }

  async #give(text: () => Iterable<string>): Promise<void> {
    const { code, stderr } = await this.#run(["-f", "-"], { stdin: text() });
    if (code === 0) return;
    const lines = [...text()].join("").split("\n");
    throw errorOfWrite({ code, stderr }, { lines, ownerOf: () => undefined });
  }

  async #run(args: readonly string[], options: Parameters<CommandRunner["run"]>[2]) {
    try {
      return await this.#commands.run("nft", args, { ...options, timeoutMs: TIMEOUT_MS });
    } catch (error) {
      throw errorOfCommand("count what goes through Services", error);
    }
  }
}
