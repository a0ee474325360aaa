/**
 * The rule that masquerades traffic of pods, by iptables: for hosts whose kernel or tools have no
 * nftables.
 *
 * @module
 */
import { cidrFamilyOf } from "../../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { contentId } from "../../../lib/policy/content_id.ts";
import { IptablesRunner } from "../../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../../netfilter/iptables/iptables_variant.ts";
import { restoreLines } from "../../netfilter/iptables/iptables_objects.ts";
import type { RemovalStep } from "../../netfilter/foreign/removal_run.ts";
import { type Masquerade, type MasqueradeTool, MULTICAST } from "./masquerade.ts";

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
