/**
 * The four rule sets that a machine may have at once: iptables-nft and iptables-legacy, each for IPv4
 * and IPv6. A packet passes all of them; no tool shows more than one.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import {
  findIptablesPrograms,
  type IptablesVariant,
  readLegacyTables,
} from "./iptables_variant.ts";
import { askTool, type Seen } from "../probe/try_tool.ts";
import { IptablesSave, type SavedTables } from "./iptables_save.ts";

/** One rule set. */
export interface IptablesRuleSet {
  readonly family: IpFamily;
  readonly variant: IptablesVariant;
}

/**
 * The contents of one rule engine, and the program that changes it (`iptables-restore` by whatever
 * name).
 */
export interface RuleSetContents {
  readonly world: IptablesRuleSet;
  readonly tables: SavedTables;
  readonly restoreProgram: string;
}

/** Every rule set; the order in which they are looked at and cleaned. */
export const IPTABLES_RULE_SETS: readonly IptablesRuleSet[] = [
  { family: "IPv4", variant: "nft" },
  { family: "IPv6", variant: "nft" },
  { family: "IPv4", variant: "legacy" },
  { family: "IPv6", variant: "legacy" },
];

/** 10,000 Services of kube-proxy are 10 MB; iptables-nft prints them in 0.7 s. */
const SAVE_TIMEOUT_MS = 60_000;

/** For a person: `iptables-nft` or `ip6tables-legacy`. */
export function nameOfRuleSet({ family, variant }: IptablesRuleSet): string {
  return `${prefixOf(family)}-${variant}`;
}

/**
 * Reads the rules of one variant, or only their numbers. `absent`: it is unused, or the machine has no
 * tool for it. No module is loaded: `/proc` names the legacy tables first, because `iptables-legacy`
 * creates those it reads.
 */
export async function readRuleSet(
  { commands }: { readonly commands: CommandRunner },
  world: IptablesRuleSet,
  { countsOnly, signal }: { readonly countsOnly?: boolean; readonly signal?: AbortSignal } = {},
): Promise<Seen<RuleSetContents>> {
  const options = { timeoutMs: SAVE_TIMEOUT_MS, ...(signal && { signal }) };
  let tables = "";
  if (world.variant === "legacy") {
    const seen = await readLegacyTables(commands, { family: world.family, ...options });
    if (seen.state !== "seen") return seen;
    tables = seen.value.join(", ");
    if (tables === "") return { state: "absent", reason: `${nameOfRuleSet(world)} has no tables` };
  }
  const { usable } = await findIptablesPrograms({ commands }, { family: world.family, signal });
  const programs = usable.find(({ variant }) => variant === world.variant);
  if (programs === undefined) {
    const reason = `${nameOfRuleSet(world)} is not installed`;
    if (tables === "") return { state: "absent", reason };
    return { state: "refused", reason: `${reason}, but its tables ${tables} exist` };
  }
  const save = new IptablesSave({ countsOnly });
  const onLine = (line: string) => save.take(line);
  try {
    const seen = await askTool(commands, [programs.save], { ...options, onLine });
    if (seen.state !== "seen") return seen;
    const saved = save.end({ mayLack: true });
    return { state: "seen", value: { world, tables: saved, restoreProgram: programs.restore } };
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return { state: "refused", reason: `${programs.save}: ${error.message}` };
  }
}

function prefixOf(family: IpFamily): string {
  return family === "IPv6" ? "ip6tables" : "iptables";
}
