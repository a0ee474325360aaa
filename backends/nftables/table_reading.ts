/**
 * The table of one family, read ahead of a comparison.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { ReadingAhead } from "../netfilter/reading_ahead.ts";
import type { FoundTable } from "./found_table.ts";
import { NftRunner } from "./nft_runner.ts";

/** As {@linkcode NftRunner.readWithCode}. */
export class TableReading extends ReadingAhead<FoundTable | undefined> {
  constructor(edges: { readonly commands: CommandRunner }, family: IpFamily) {
    super(family, (signal) => new NftRunner(edges, family).readWithCode({ signal }));
  }
}
