import { TableListing } from "../../../backends/netfilter/nft/table_listing.ts";
import { EXPRESSIONS, TABLE } from "../../../backends/nftables/containers.ts";
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import { systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { defaultRenderOptions } from "../builders/nftables_render_options.ts";
import { nftMeaning } from "../texts/nft_meaning.ts";
import type { Namespace } from "./netns.ts";

/** Gives text to `nft -f -`. Throws when it is refused. */
export async function loadNftables(node: Namespace, stdin: string): Promise<void> {
  const args = ["netns", "exec", node.name, "nft", "-f", "-"];
  const { code, stderr } = await systemCommandRunner.run("ip", args, { stdin });
  if (code !== 0) throw new Error(`Cannot load tables of nftables: ${stderr}`);
}

/** All foreign tables as text, without counters. */
export async function foreignTables(node: Namespace): Promise<string> {
  const text = await node.output("nft", ["-s", "list", "ruleset"]);
  return text.split(/^(?=table )/m)
    .filter((table) => !new RegExp(`^table ip6? ${TABLE} `).test(table)).join("");
}

/** The relevant content of kube-relay's tables, for comparisons over time or between nodes. */
export async function nftablesState(node: Namespace): Promise<Record<IpFamily, unknown>> {
  const [IPv4, IPv6] = await Promise.all(IP_FAMILIES.map((family) => meaningOf(node, family)));
  return { IPv4, IPv6 };
}

async function meaningOf(node: Namespace, family: IpFamily): Promise<unknown> {
  const { code, stdout } = await node.run("nft", [
    "list",
    "table",
    EXPRESSIONS[family].table,
    TABLE,
  ]);
  if (code !== 0) return undefined;
  const listing = new TableListing();
  for (const line of stdout.split("\n")) listing.take(line);
  const { rules, elements } = listing.end();
  const chains = new Map([...rules].map(([name, text]) => [name, text.split("\n")]));
  const table = {
    chains,
    elements: new Map<string, Map<string, string>>(
      [...elements].map(([name, values]) => [name, new Map(values)]),
    ),
  };
  return nftMeaning(table, { ...defaultRenderOptions(family), localhostNodePorts: true });
}
