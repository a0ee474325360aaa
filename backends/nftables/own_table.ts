/**
 * Takes the tables of this mode away.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import type { CleanupReport } from "../../lib/controller/data_plane.ts";
import { RemovalRun } from "../netfilter/foreign/removal_run.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import { TABLE } from "./base_chains.ts";
import { CountingRunner } from "./counting_runner.ts";
import { COUNTING_TABLE } from "./counting_table.ts";
import { EXPRESSIONS } from "./expressions.ts";
import { NftError } from "./nft_error.ts";
import { NftRunner } from "./nft_runner.ts";

/** How the removal is done. */
interface OwnTableRemoval {
  readonly family: IpFamily;
  /** Only tells what would be done. */
  readonly dryRun: boolean;
}

/** Takes the tables of a family away, which is all that this mode ever wrote. */
export async function removeOwnTable(
  edges: { readonly commands: CommandRunner },
  { family, dryRun }: OwnTableRemoval,
): Promise<CleanupReport> {
  const run = new RemovalRun(edges, { dryRun });
  const tables: (readonly [name: string, isThere: boolean])[] = [];
  try {
    tables.push([TABLE, (await new NftRunner(edges, family).chains()).size > 0]);
    tables.push([COUNTING_TABLE, await new CountingRunner(edges, family).isThere()]);
  } catch (error) {
    if (!(error instanceof NftError)) throw error;
    // Without the program this mode never ran here.
    const isMissing = /ENOENT|not found/i.test(messageOf(error));
    if (!isMissing) run.unseen(`table ${EXPRESSIONS[family].table} ${TABLE}`, error.message);
    return run.report();
  }
  for (const [name, isThere] of tables) {
    const table = `${EXPRESSIONS[family].table} ${name}`;
    if (!isThere) continue;
    await run.do(`table ${table}`, {
      command: ["nft", "-f", "-"],
      // Added first: deleting one that has gone meanwhile would fail.
      input: () => [`add table ${table}\ndelete table ${table}\n`],
      removes: [`table ${table} (nftables)`],
    });
  }
  return run.report();
}
