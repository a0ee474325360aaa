/**
 * The programs of each iptables variant, as they are named on this machine.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import {
  type AskOptions,
  type ProbeDependencies,
  readProcFile,
  type Seen,
  tryTool,
} from "../probe/try_tool.ts";

/** The kernel's rule engine to which an `iptables` program writes. */
export type IptablesVariant = "nft" | "legacy";

/** The programs of one variant and family. */
export interface IptablesPrograms {
  readonly variant: IptablesVariant;
  /** E.g. `iptables-save` or `ip6tables-legacy-save`. */
  readonly save: string;
  readonly restore: string;
  /** As the program says it, e.g. `iptables-restore v1.8.9 (nf_tables)`. */
  readonly version: string;
  /** Whether plain `iptables` is of this variant. */
  readonly plain: boolean;
}

/** The programs found on the PATH. */
interface ProgramsFound {
  /** At most one of each variant, the one with the plain name first. */
  readonly usable: readonly IptablesPrograms[];
  /** The reason why the plain name cannot be used; absent if it can. */
  readonly problem?: string;
}

interface ProgramOptions {
  readonly family: IpFamily;
  readonly signal?: AbortSignal | undefined;
}

/** The programs of one name, or the reason why they cannot be used. */
type NamedPrograms = IptablesPrograms | { readonly variant?: undefined; readonly problem: string };

/** Asks the plain program for its variant. Throws only when the caller gave up. */
export async function findPlainPrograms(
  dependencies: ProbeDependencies,
  options: ProgramOptions,
): Promise<NamedPrograms> {
  return await askForVersion(dependencies, plainName(options), { ...options, plain: true });
}

/**
 * Finds the programs of both variants: by the plain name, and by the full names of variants that the
 * plain program is not. Throws only when the caller gave up.
 */
export async function findIptablesPrograms(
  dependencies: ProbeDependencies,
  options: ProgramOptions,
): Promise<ProgramsFound> {
  const plain = await findPlainPrograms(dependencies, options);
  const others = (["nft", "legacy"] as const).filter((variant) => variant !== plain.variant);
  const named = await Promise.all(others.map((variant) => {
    const name = `${plainName(options)}-${variant}`;
    return askForVersion(dependencies, name, { ...options, plain: false });
  }));
  const usable: IptablesPrograms[] = [];
  for (const found of [plain, ...named]) {
    if (found.variant === undefined) continue;
    if (!usable.some(({ variant }) => variant === found.variant)) usable.push(found);
  }
  return { usable, ...(plain.variant === undefined && { problem: plain.problem }) };
}

function plainName({ family }: ProgramOptions): string {
  return family === "IPv6" ? "ip6tables" : "iptables";
}

async function askForVersion(
  dependencies: ProbeDependencies,
  name: string,
  { plain, signal }: ProgramOptions & Pick<IptablesPrograms, "plain">,
): Promise<NamedPrograms> {
  const [save, restore] = [`${name}-save`, `${name}-restore`];
  const line = [restore, "--version"] as const;
  const answer = await tryTool(dependencies, line, { signal, mayBeRecent: true });
  if (answer.kind !== "ended") return { problem: answer.reason };
  const [version] = / v\d+\.\d+.*/.exec(answer.out) ?? [];
  if (version === undefined || answer.code !== 0) {
    return { problem: `${restore} --version ended with ${answer.code} and printed no version` };
  }
  // Before 1.8 there was legacy only, and no word about it.
  const variant = version.includes("(nf_tables)") ? "nft" : "legacy";
  return { variant, save, restore, version: version.trim(), plain };
}

/** Reads which legacy tables exist. Looking creates none, where `iptables-legacy` would. */
export async function readLegacyTables(
  commands: CommandRunner,
  { family, ...options }: { readonly family: IpFamily } & AskOptions,
): Promise<Seen<readonly string[]>> {
  const file = family === "IPv6" ? "/proc/net/ip6_tables_names" : "/proc/net/ip_tables_names";
  const seen = await readProcFile(commands, file, options);
  return seen.state === "seen"
    ? { ...seen, value: seen.value.split(/\s+/).filter((name) => name !== "") }
    : seen;
}
