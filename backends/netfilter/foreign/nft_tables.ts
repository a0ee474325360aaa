import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { NftError } from "../nft/nft_error.ts";
import { deletionText, type NftTable } from "../nft/nft_objects.ts";
import { NftRunner } from "../nft/nft_runner.ts";
import { parseTableHeads } from "../nft/table_listing.ts";
import { askTool, type Seen } from "../probe/try_tool.ts";
import type { RemovalRun } from "./removal_run.ts";

/**
 * Lists the names of all tables, through their flowtables: for `list tables`, nft 1.0.6 reads every
 * rule, including iptables-nft's, which takes seconds of CPU at 10,000 Services.
 */
export async function listNftTables(
  commands: CommandRunner,
  options: { readonly signal?: AbortSignal } = {},
): Promise<Seen<readonly NftTable[]>> {
  const seen = await askTool(commands, ["nft", "list", "flowtables"], options);
  return seen.state === "seen" ? { ...seen, value: parseTableHeads(seen.value) } : seen;
}

/** Formats a table for messages: `table ip kube-proxy (nftables)`. */
export function describeNftTable({ family, name }: NftTable): string {
  return `table ${family} ${name} (nftables)`;
}

/** Removes a table of kube-relay, if it is there. Returns whether nft can be used. */
export async function removeOwnTable(
  edges: { readonly commands: CommandRunner },
  run: RemovalRun,
  table: NftTable,
): Promise<boolean> {
  const name = `table ${table.family} ${table.name}`;
  try {
    if (!await new NftRunner(edges, table).isThere()) return true;
  } catch (error) {
    if (!(error instanceof NftError)) throw error;
    // Without the program, kube-relay cannot have written a table.
    if (!/ENOENT|not found/i.test(error.message)) run.unseen(name, error.message);
    return false;
  }
  await run.do(name, {
    command: ["nft", "-f", "-"],
    input: () => [deletionText(table)],
    removes: [describeNftTable(table)],
  });
  return true;
}
