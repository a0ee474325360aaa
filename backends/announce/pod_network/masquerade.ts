/**
 * The rule that gives traffic of pods that leaves the cluster the address of the node: a table of
 * nftables of its own, so that it works together with Services in any mode.
 *
 * @module
 */
import { cidrFamilyOf } from "../../../lib/net/cidr.ts";
import { IP_FAMILIES } from "../../../lib/net/ip_address.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import { contentId } from "../../../lib/policy/content_id.ts";
import type { PodNetworkPlan } from "../../../lib/routing/pod_network_plan.ts";
import { deletionText, nftFamily } from "../../netfilter/nft/nft_objects.ts";
import type { RemovalStep } from "../../netfilter/foreign/removal_run.ts";
import { reasonOfExit } from "../../netfilter/probe/try_tool.ts";

/** The table. */
const MASQUERADE_TABLE = { family: "inet", name: "kube-relay-pods" } as const;

/** Groups of receivers, which no reply comes back from. */
export const MULTICAST = { IPv4: ["224.0.0.0/4", "255.255.255.255"], IPv6: ["ff00::/8"] } as const;

/** The part of a plan. */
export type Masquerade = NonNullable<PodNetworkPlan["masquerade"]>;

/** The rules, as text for `nft -f -`. The name of an empty chain identifies them. */
export function masqueradeText(masquerade: Masquerade): string {
  const body = bodyOf(masquerade);
  const { family, name } = MASQUERADE_TABLE;
  return `table ${family} ${name} {\n  chain ${markOf(body)} {\n  }\n${body}}\n`;
}

function bodyOf({ sources, except }: Masquerade): string {
  const sets: string[] = [];
  const rules: string[] = [];
  for (const family of IP_FAMILIES) {
    const own = sources.filter((each) => cidrFamilyOf(each) === family);
    if (own.length === 0) continue;
    const inside = except.filter((each) => cidrFamilyOf(each) === family);
    const [ip, digit] = [nftFamily(family), family === "IPv4" ? "4" : "6"];
    const set = (label: string, elements: readonly string[]) =>
      `  set ${label}${digit} {\n    type ip${family === "IPv4" ? "v4" : "v6"}_addr\n` +
      `    flags interval\n    auto-merge\n    elements = { ${elements.join(", ")} }\n  }\n`;
    sets.push(set("pods", own), set("cluster", [...inside, ...MULTICAST[family]]));
    rules.push(
      `    ${ip} saddr @pods${digit} ${ip} daddr != @cluster${digit} masquerade fully-random\n`,
    );
  }
  return `${sets.join("")}  chain postrouting {\n` +
    `    type nat hook postrouting priority srcnat; policy accept;\n${rules.join("")}  }\n`;
}

function markOf(body: string): string {
  return `content-${contentId(body)}`;
}

/**
 * Whether the machine has nft and a kernel that takes such rules. Changes nothing. A kernel without
 * the family says only that there is no such table, so a listing does not tell.
 */
export async function hasNft(commands: CommandRunner): Promise<boolean> {
  try {
    const stdin = [masqueradeText({ sources: [], except: [] })];
    return (await commands.run("nft", ["--check", "-f", "-"], { stdin })).code === 0;
  } catch (error) {
    if (error instanceof CommandError && error.kind === "not-found") return false;
    throw error;
  }
}

/** A tool that can masquerade. */
export interface MasqueradeTool {
  /** Where the rules are, for users. */
  readonly place: string;
  /** Identifies the rules that it writes. */
  textOf(masquerade: Masquerade): string;
  /** As {@linkcode textOf}, or what is wrong with the rules; `undefined` if there are none. */
  read(): Promise<string | undefined>;
  /** Replaces the rules; `undefined` removes them. */
  write(masquerade: Masquerade | undefined): Promise<void>;
  /** What removes the rules of any run. */
  removals(): AsyncIterable<RemovalStep>;
}

/** By nftables, in one transaction. */
export class NftMasquerade implements MasqueradeTool {
  readonly place = `table ${MASQUERADE_TABLE.name} of nftables`;
  readonly #commands: CommandRunner;

  constructor(commands: CommandRunner) {
    this.#commands = commands;
  }

  textOf(masquerade: Masquerade): string {
    return markOf(bodyOf(masquerade));
  }

  async read(): Promise<string | undefined> {
    const { family, name } = MASQUERADE_TABLE;
    const result = await this.#commands.run("nft", ["list", "table", family, name]);
    if (result.code === 0) {
      const { stdout: text } = result;
      const [, mark] = /chain (content-\w+) \{/.exec(text) ?? [];
      const isWhole = text.includes("type nat hook postrouting") && text.includes("masquerade");
      return isWhole && mark !== undefined ? mark : "other rules";
    }
    if (result.stderr.includes("No such file or directory")) return undefined;
    throw new Error(`Cannot read ${this.place}: ${reasonOfExit("nft", result)}`);
  }

  async write(masquerade: Masquerade | undefined): Promise<void> {
    const rules = masquerade ? masqueradeText(masquerade) : "";
    const stdin = [deletionText(MASQUERADE_TABLE) + rules];
    const result = await this.#commands.run("nft", ["-f", "-"], { stdin });
    if (result.code === 0) return;
    throw new Error(`Cannot write ${this.place}: ${reasonOfExit("nft", result)}`);
  }

  async *removals(): AsyncGenerator<RemovalStep> {
    if (await this.read() === undefined) return;
    const { family, name } = MASQUERADE_TABLE;
    const removes = [`table ${family} ${name} of nftables`];
    yield { command: ["nft", "delete", "table", family, name], removes };
  }
}
