/**
 * The rule that masquerades traffic of pods, by iptables: for hosts whose kernel or tools have no
 * nftables.
 *
 * @module
 */
import { cidrFamilyOf } from "../../lib/net/cidr.ts";
import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";
import { contentId } from "../../lib/policy/content_id.ts";
import { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { chooseIptables } from "../netfilter/iptables/iptables_variant.ts";
import { restoreLines } from "../netfilter/iptables/restore_batch.ts";
import { type Masquerade, MULTICAST } from "./masquerade.ts";

/** The chain, in table `nat` of both families. */
const CHAIN = "KUBE-RELAY-PODS";
const JUMP = { from: "POSTROUTING", rule: `-j ${CHAIN}` } as const;

/**
 * Writes the rules of both families, unless they are there; `undefined` removes them. Returns whether
 * it wrote.
 */
export async function writeIptablesMasquerade(
  commands: CommandRunner,
  masquerade: Masquerade | undefined,
): Promise<boolean> {
  let isWritten = false;
  for (const family of IP_FAMILIES) {
    const rules = masquerade && rulesOf(masquerade, family);
    const choice = await chooseIptables({ commands }, { family });
    if (!choice.programs) {
      if (rules) throw new Error(`Cannot masquerade by iptables: ${choice.problem}`);
      continue;
    }
    const runner = new IptablesRunner({ commands }, choice.programs);
    if (await bringUpToDate(runner, rules)) isWritten = true;
  }
  return isWritten;
}

/** The input of a program that removes the rules of a family. */
export interface IptablesRemoval {
  readonly family: IpFamily;
  /** E.g. `iptables-restore`. */
  readonly restore: string;
  readonly lines: readonly string[];
}

/** Returns the removals for the families that have rules. Changes nothing. */
export async function iptablesRemovals(
  commands: CommandRunner,
): Promise<readonly IptablesRemoval[]> {
  const removals: IptablesRemoval[] = [];
  for (const family of IP_FAMILIES) {
    const { programs } = await chooseIptables({ commands }, { family });
    if (!programs) continue;
    const lines = await removalLines(new IptablesRunner({ commands }, programs));
    if (lines) removals.push({ family, restore: programs.restore, lines });
  }
  return removals;
}

async function removalLines(runner: IptablesRunner): Promise<readonly string[] | undefined> {
  if (await runner.rulesOf("nat", CHAIN) === undefined) return undefined;
  const removedJumps = await hasJump(runner) ? [{ ...JUMP, name: CHAIN }] : [];
  return restoreLines([{ table: "nat", removedJumps, removed: [CHAIN] }]);
}

/** Reads the chain, because `-C` of iptables-legacy-restore does not say why it fails. */
async function hasJump(runner: IptablesRunner): Promise<boolean> {
  return (await runner.rulesOf("nat", JUMP.from))?.includes(JUMP.rule) ?? false;
}

async function bringUpToDate(
  runner: IptablesRunner,
  rules: readonly string[] | undefined,
): Promise<boolean> {
  if (!rules) {
    const lines = await removalLines(runner);
    if (lines) await runner.restore({ lines });
    return lines !== undefined;
  }
  const found = await runner.rulesOf("nat", CHAIN);
  const isEntered = found !== undefined && await hasJump(runner);
  const isSame = found?.length === rules.length && found[0]?.includes(markOf(rules.slice(1)));
  if (isSame && isEntered) return false;
  const chains = [{ name: CHAIN, rules }];
  const appended = isEntered ? [] : [{ ...JUMP, name: CHAIN }];
  await runner.restore({ lines: restoreLines([{ table: "nat", chains, appended }]) });
  return true;
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
  return [`-m comment --comment ${markOf(rules)}`, ...rules];
}

function markOf(rules: readonly string[]): string {
  return `content-${contentId(rules.join("\n"))}`;
}
