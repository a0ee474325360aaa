import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { NftTable } from "../nft/nft_objects.ts";
import { parseTableHeads } from "../nft/table_listing.ts";
import { askTool, type Seen } from "../probe/try_tool.ts";

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
