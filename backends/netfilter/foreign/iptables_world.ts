/**
 * The four rule sets that a machine may have at once: iptables-nft and iptables-legacy, each for IPv4
 * and IPv6. A packet passes all of them; no tool shows more than one.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { inSteps } from "./in_steps.ts";
import { type IptablesDump, type JumpFilter, readIptablesDump } from "./iptables_dump.ts";
import { askTool, readProcFile, type Seen } from "./tool_output.ts";

/** Which of the kernel's two rule engines an `iptables` writes to. */
export type IptablesVariant = "nft" | "legacy";

/** One rule set. */
export interface IptablesWorld {
  readonly family: IpFamily;
  readonly variant: IptablesVariant;
}

/** What a world holds, and the program that changes it. */
export interface WorldContents {
  readonly world: IptablesWorld;
  readonly dump: IptablesDump;
  /** `iptables-nft-restore`, or whatever this machine has for it. */
  readonly restoreProgram: string;
}

/** How a world is looked at. */
export interface WorldOptions {
  readonly keepJump: JumpFilter;
  readonly signal?: AbortSignal;
}

/** Every rule set; the order in which they are looked at and cleaned. */
export const IPTABLES_WORLDS: readonly IptablesWorld[] = [
  { family: "IPv4", variant: "nft" },
  { family: "IPv6", variant: "nft" },
  { family: "IPv4", variant: "legacy" },
  { family: "IPv6", variant: "legacy" },
];

/** 10,000 Services of kube-proxy are 10 MB; iptables-nft prints them in 0.7 s. */
const SAVE_TIMEOUT_MS = 60_000;

/** For a person: `iptables-nft` or `ip6tables-legacy`. */
export function nameOfWorld({ family, variant }: IptablesWorld): string {
  return `${prefixOf(family)}-${variant}`;
}

/**
 * Reads a world. `absent`: nobody uses it, or the machine has no tool for it. No module is loaded for
 * it: legacy tables are asked for by `/proc` first, since `iptables-legacy` makes those it looks at.
 */
export async function lookAtWorld(
  { commands, clock }: { readonly commands: CommandRunner; readonly clock: Clock },
  world: IptablesWorld,
  { keepJump, signal }: WorldOptions,
): Promise<Seen<WorldContents>> {
  const options = { timeoutMs: SAVE_TIMEOUT_MS, ...(signal && { signal }) };
  let tables = "";
  if (world.variant === "legacy") {
    const seen = await readProcFile(commands, legacyTablesFile(world), options);
    if (seen.state !== "seen") return seen;
    tables = seen.value.trim().replaceAll("\n", ", ");
    if (tables === "") return { state: "absent", reason: `${nameOfWorld(world)} has no tables` };
  }
  const program = await findWorldPrefix(commands, world, options);
  if (program === undefined) {
    const reason = `${nameOfWorld(world)}-save is not installed`;
    if (tables === "") return { state: "absent", reason };
    return { state: "refused", reason: `${reason}, but its tables ${tables} exist` };
  }
  const text = await askTool(commands, [`${program}-save`], options);
  if (text.state !== "seen") return text;
  const dump = await inSteps({ clock }, readIptablesDump(text.value, keepJump));
  return { state: "seen", value: { world, dump, restoreProgram: `${program}-restore` } };
}

/**
 * How the programs of a world begin: with their full names or, where a machine has only one variant
 * under the short name (k3s's own tools, Alpine), as `iptables-save --version` tells.
 */
async function findWorldPrefix(
  commands: CommandRunner,
  world: IptablesWorld,
  options: { readonly signal?: AbortSignal },
): Promise<string | undefined> {
  const full = await askTool(commands, [`${nameOfWorld(world)}-save`, "--version"], options);
  if (full.state === "seen") return nameOfWorld(world);
  const short = prefixOf(world.family);
  const version = await askTool(commands, [`${short}-save`, "--version"], options);
  if (version.state !== "seen") return undefined;
  // Before 1.8 there was legacy only, and no word about it.
  const variant = version.value.includes("(nf_tables)") ? "nft" : "legacy";
  return variant === world.variant ? short : undefined;
}

/** The file that names a family's legacy tables; empty or missing while nobody uses them. */
function legacyTablesFile({ family }: IptablesWorld): string {
  return family === "IPv6" ? "/proc/net/ip6_tables_names" : "/proc/net/ip_tables_names";
}

function prefixOf(family: IpFamily): string {
  return family === "IPv6" ? "ip6tables" : "iptables";
}
