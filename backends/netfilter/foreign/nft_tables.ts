/**
 * The tables of nftables.
 *
 * @module
 */
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import type { NftTable } from "../nft/nft_objects.ts";
import { parseTableHeads } from "../nft/table_listing.ts";
import { askTool, type Seen } from "./tool_output.ts";

/** The table that kube-proxy's nftables mode keeps everything in. */
export function isKubeProxyTable({ family, name }: NftTable): boolean {
  return name === "kube-proxy" && (family === "ip" || family === "ip6");
}

/**
 * Lists all tables, by name only. By way of their flowtables: nft 1.0.6 reads every rule, of
 * iptables-nft too, for `list tables`, which takes seconds of CPU at 10,000 Services.
 */
export async function listNftTables(
  commands: CommandRunner,
  options: { readonly signal?: AbortSignal } = {},
): Promise<Seen<readonly NftTable[]>> {
  const seen = await askTool(commands, ["nft", "list", "flowtables"], options);
  return seen.state === "seen" ? { ...seen, value: parseTableHeads(seen.value) } : seen;
}
