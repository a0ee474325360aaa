import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { deletionText, type NftTable } from "../nft/nft_objects.ts";
import { parseTableHeads } from "../nft/table_listing.ts";
import type { RemovalRun } from "./removal_run.ts";
import { askTool, type Seen } from "../probe/try_tool.ts";

/** The table that contains all rules of kube-proxy's nftables mode. */
export function isKubeProxyTable({ family, name }: NftTable): boolean {
  return name === "kube-proxy" && (family === "ip" || family === "ip6");
}

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

/** Removes the tables that `isLeftover` accepts. `whose` describes them in messages. */
export async function removeNftTables(
  { commands }: { readonly commands: CommandRunner },
  { whose, isLeftover, run }: {
    readonly whose: string;
    readonly isLeftover: (table: NftTable) => boolean;
    readonly run: RemovalRun;
  },
): Promise<void> {
  const seen = await listNftTables(commands, run.signal);
  if (seen.state === "refused") run.unseen("tables of nftables", seen.reason);
  if (seen.state !== "seen") return;
  const tables = seen.value.filter(isLeftover);
  if (tables.length === 0) return;
  await run.do(`${whose} of nftables`, {
    command: ["nft", "-f", "-"],
    input: () => tables.map(deletionText),
    removes: tables.map(describeNftTable),
  });
}

/** Formats a table for messages: `table ip kube-proxy (nftables)`. */
export function describeNftTable({ family, name }: NftTable): string {
  return `table ${family} ${name} (nftables)`;
}
