/**
 * The rule that gives traffic of pods that leaves the cluster the address of the node: a table of
 * nftables of its own, so that it works together with Services in any mode. On hosts whose kernel or
 * tools have no nftables, chains of iptables.
 *
 * @module
 */
import { cidrFamilyOf } from "../../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import { CommandError, type CommandRunner } from "../../../lib/os/command_runner.ts";
import { contentId } from "../../../lib/policy/content_id.ts";
import type { PodNetworkPlan } from "../../../lib/routing/pod_network_plan.ts";
import { restoreLines } from "../../netfilter/iptables/iptables_objects.ts";
import { IptablesRunner } from "../../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../../netfilter/iptables/iptables_variant.ts";
import { deletionText, nftFamily } from "../../netfilter/nft/nft_objects.ts";
import type { RemovalStep } from "../../netfilter/foreign/removal_run.ts";
import { reasonOfExit } from "../../netfilter/probe/try_tool.ts";

/** The table. */
const MASQUERADE_TABLE = { family: "inet", name: "kube-relay-pods" } as const;

/** Groups of receivers, which no reply comes back from. */
const MULTICAST = { IPv4: ["224.0.0.0/4", "255.255.255.255"], IPv6: ["ff00::/8"] } as const;

/** The part of a plan. */
type Masquerade = NonNullable<PodNetworkPlan["masquerade"]>;

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

/** The chain, in table `nat` of both families. */
const CHAIN = "KUBE-RELAY-PODS";
const JUMP = { name: CHAIN, from: "POSTROUTING", rule: `-j ${CHAIN}` } as const;

/** The rules of a family as they are found. */
interface FoundRules {
  readonly family: IpFamily;
  readonly runner: IptablesRunner;
  /** E.g. `iptables-restore`. */
  readonly restore: string;
  /** `undefined` = there is no chain. */
  readonly rules: readonly string[] | undefined;
  readonly isEntered: boolean;
}

/** By chains of iptables. */
export class IptablesMasquerade implements MasqueradeTool {
  readonly place = `chain ${CHAIN} of iptables`;
  readonly #commands: CommandRunner;

  constructor(commands: CommandRunner) {
    this.#commands = commands;
  }

  textOf(masquerade: Masquerade): string {
    return IP_FAMILIES.flatMap((family) => textOf(family, rulesOf(masquerade, family))).join();
  }

  async read(): Promise<string | undefined> {
    const text = (await Array.fromAsync(this.#found())).flatMap(foundText).join();
    return text === "" ? undefined : text;
  }

  async write(masquerade: Masquerade | undefined): Promise<void> {
    for await (const found of this.#found(masquerade)) {
      const rules = masquerade && rulesOf(masquerade, found.family);
      if (`${textOf(found.family, rules)}` === `${foundText(found)}`) continue;
      const lines = rules
        ? restoreLines([{
          table: "nat",
          chains: [{ name: CHAIN, rules }],
          appended: found.isEntered ? [] : [JUMP],
        }])
        : removalLines(found);
      await found.runner.restore({ lines });
    }
  }

  async *removals(): AsyncGenerator<RemovalStep> {
    for await (const found of this.#found()) {
      if (!found.rules) continue;
      yield {
        command: [found.restore, "--noflush"],
        input: () => removalLines(found).map((line) => `${line}\n`),
        removes: [`${this.place}, ${found.family}`],
      };
    }
  }

  /** Throws for a family that is wanted, if there are no programs for it. */
  async *#found(wanted?: Masquerade): AsyncGenerator<FoundRules> {
    for (const family of IP_FAMILIES) {
      const choice = await chooseIptables({ commands: this.#commands }, { family });
      if (!choice.programs) {
        if (!wanted || !rulesOf(wanted, family)) continue;
        throw new Error(`Cannot masquerade by iptables: ${choice.problem}`);
      }
      const { restore } = choice.programs;
      const runner = new IptablesRunner({ commands: this.#commands }, choice.programs);
      const rules = await runner.rulesOf("nat", CHAIN);
      // Reads the chain, because `-C` of iptables-legacy-restore does not say why it fails.
      const isEntered = rules !== undefined &&
        (await runner.rulesOf("nat", JUMP.from))?.includes(JUMP.rule) === true;
      yield { family, runner, restore, rules, isEntered };
    }
  }
}

function removalLines({ isEntered }: FoundRules): readonly string[] {
  return restoreLines([{
    table: "nat",
    removedJumps: isEntered ? [JUMP] : [],
    removed: [CHAIN],
  }]);
}

/** The rules of a family, `undefined` if the node has no pods of it. The first one identifies them. */
function rulesOf(
  { sources, except }: Masquerade,
  family: IpFamily,
): readonly string[] | undefined {
  const isOf = (cidr: typeof sources[number]) => cidrFamilyOf(cidr) === family;
  const [own] = sources.filter(isOf);
  if (own === undefined) return undefined;
  const rules = [
    `! -s ${own} -j RETURN`,
    ...[...except.filter(isOf), ...MULTICAST[family]].map((each) => `-d ${each} -j RETURN`),
    "-j MASQUERADE --random-fully",
  ];
  return [`-m comment --comment content-${contentId(rules.join("\n"))}`, ...rules];
}

/** What identifies rules, written or printed; none without a chain. */
function textOf(family: IpFamily, rules: readonly string[] | undefined): string[] {
  if (!rules) return [];
  const [mark = "other rules"] = /content-\w+/.exec(rules[0] ?? "") ?? [];
  return [`${family} ${mark}, ${rules.length} rules`];
}

function foundText({ family, rules, isEntered }: FoundRules): string[] {
  return textOf(family, rules).map((text) => isEntered ? text : `${text}, no jump`);
}
