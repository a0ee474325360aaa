/**
 * The rules of one family, read ahead of a comparison.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { KernelReading } from "../../lib/proxy/backend.ts";
import { IptablesRunner } from "../netfilter/iptables_runner.ts";
import type { SavedTables } from "../netfilter/iptables_save.ts";
import {
  chooseIptables,
  type IptablesChoice,
  type NoIptables,
} from "../netfilter/iptables_variant.ts";
import { ReadingAhead } from "../netfilter/reading_ahead.ts";

/** Which programs there are, and what they print. */
export class RulesReading implements KernelReading {
  readonly family: IpFamily;
  readonly #choice: ReadingAhead<IptablesChoice | NoIptables>;
  readonly #tables: ReadingAhead<SavedTables | undefined>;

  constructor(edges: { readonly commands: CommandRunner }, family: IpFamily) {
    this.family = family;
    this.#choice = new ReadingAhead(family, (signal) => chooseIptables(edges, { family, signal }));
    this.#tables = new ReadingAhead(family, async (signal) => {
      const { programs } = await this.#choice.result;
      return programs && await new IptablesRunner(edges, programs).save({ signal });
    });
  }

  /** As {@linkcode chooseIptables}. */
  get choice(): Promise<IptablesChoice | NoIptables> {
    return this.#choice.result;
  }

  /** As {@linkcode IptablesRunner.save}; `undefined` = there are no programs for it. */
  get tables(): Promise<SavedTables | undefined> {
    return this.#tables.result;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#choice[Symbol.asyncDispose]();
    await this.#tables[Symbol.asyncDispose]();
  }
}
