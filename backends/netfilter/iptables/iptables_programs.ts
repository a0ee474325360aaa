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

/** Asks `iptables-restore` and its two full names for their versions. Throws only when the caller gave up. */
export async function findIptablesPrograms(
  dependencies: ProbeDependencies,
  { family, signal }: { readonly family: IpFamily; readonly signal?: AbortSignal | undefined },
): Promise<ProgramsFound> {
  const prefix = family === "IPv6" ? "ip6tables" : "iptables";
  const names = [prefix, `${prefix}-nft`, `${prefix}-legacy`];
  const answers = await Promise.all(
    names.map((name) => tryTool(dependencies, [`${name}-restore`, "--version"], { signal })),
  );
  const usable: IptablesPrograms[] = [];
  let problem: string | undefined;
  for (const [index, answer] of answers.entries()) {
    const name = names[index]!;
    const [version] = (answer.kind === "ended" && / v\d+\.\d+.*/.exec(answer.out)) || [];
    if (version === undefined || answer.kind !== "ended" || answer.code !== 0) {
      problem ??= answer.kind === "ended"
        ? `${name}-restore --version ended with ${answer.code} and printed no version`
        : answer.reason;
      continue;
    }
    // Before 1.8 there was legacy only, and no word about it.
    const variant = version.includes("(nf_tables)") ? "nft" : "legacy";
    if (usable.some((programs) => programs.variant === variant)) continue;
    const [save, restore] = [`${name}-save`, `${name}-restore`];
    usable.push({ variant, save, restore, version: version.trim(), plain: index === 0 });
  }
  return { usable, ...(problem !== undefined && { problem }) };
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
