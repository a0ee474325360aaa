/**
 * Chooses between the two variants of iptables on a host. A packet passes the rules of both, and no
 * tool shows both, so rules in the unused variant stay unnoticed (kubernetes/kubernetes#71305).
 *
 * What counts is content. The kubelet leaves a chain in mangle for this very purpose
 * (`KUBE-IPTABLES-HINT`, since 1.24; `KUBE-KUBELET-CANARY` before); where there is none, the world
 * with more rules is the host's, and last what plain `iptables` is.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { parseSaveLine } from "./iptables_save.ts";
import {
  type AskOptions,
  type ProbeDependencies,
  readProcFile,
  type Seen,
  tryTool,
} from "../probe/try_tool.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";

/** The iptables of a host, in one family. */
export interface IptablesChoice {
  readonly family: IpFamily;
  readonly programs: IptablesPrograms;
  /** The reason for the choice, for the user. */
  readonly reason: string;
}

/** The family to choose for. */
interface VariantOptions {
  readonly family: IpFamily;
  readonly signal?: AbortSignal | undefined;
}

const HINT = /^KUBE-(IPTABLES-HINT|KUBELET-CANARY)$/;

/** A large rule set takes a while: 40,000 rules are half a second. */
const SAVE_TIMEOUT_MS = 15_000;

/**
 * Examines both variants without changing them. Returns the problem if neither can be used. Throws only if
 * the caller aborts.
 */
export async function chooseIptables(
  dependencies: ProbeDependencies,
  options: VariantOptions,
): Promise<IptablesChoice | { readonly programs?: undefined; readonly problem: string }> {
  const { family } = options;
  const plain = await askForVersion(dependencies, plainName(options), true, options);
  // Then no rule was ever written there: a look at the rules of this one would not change the choice,
  // and takes half a second at ten thousand Services.
  if (plain.variant === "nft" && (await legacyTables(dependencies, options)).length === 0) {
    const reason = "the kernel has no legacy tables; plain iptables is this one";
    return { family, programs: plain, reason };
  }
  const { usable, problem } = await findIptablesPrograms(dependencies, options);
  const [first, second] = usable;
  if (first === undefined) return { problem: problem ?? "no iptables was found" };
  if (second === undefined) {
    const tables = first.variant === "nft" ? await legacyTables(dependencies, options) : [];
    const others = tables.length === 0
      ? ""
      : `; the kernel has legacy tables too (${tables.join(", ")}), which no tool here can show`;
    return { family, programs: first, reason: `it is the only one installed${others}` };
  }
  const hinted = await Promise.all(
    usable.map((programs) => hasHint(dependencies, programs, options)),
  );
  if (hinted[0] !== hinted[1]) {
    const programs = hinted[0] ? first : second;
    return { family, programs, reason: "the kubelet left its chain there" };
  }
  const [a, b] = await Promise.all(
    usable.map((programs) => countRules(dependencies, programs, options)),
  );
  if (a === b) {
    return { family, programs: first, reason: `both have ${a} rules; plain iptables is this one` };
  }
  const [programs, more, fewer] = a! > b! ? [first, a, b] : [second, b, a];
  return { family, programs, reason: `it has ${more} rules, the other ${fewer}` };
}

async function hasHint(
  dependencies: ProbeDependencies,
  { variant, save }: IptablesPrograms,
  options: VariantOptions,
): Promise<boolean> {
  // Legacy tools make the table that they are asked for.
  if (variant === "legacy" && !(await legacyTables(dependencies, options)).includes("mangle")) {
    return false;
  }
  const { signal } = options;
  const answer = await tryTool(dependencies, [save, "-t", "mangle"], {
    signal,
    mayBeRecent: true,
  });
  return answer.kind === "ended" && answer.out.split("\n").some((text) => {
    const line = parseSaveLine(text);
    return line?.kind === "chain" && HINT.test(line.chain);
  });
}

async function countRules(
  dependencies: ProbeDependencies,
  { variant, save }: IptablesPrograms,
  options: VariantOptions,
): Promise<number> {
  // Without a table, iptables-legacy-save prints the existing tables and creates none.
  if (variant === "legacy" && (await legacyTables(dependencies, options)).length === 0) return 0;
  const { signal } = options;
  let rules = 0;
  const onLine = (line: string) => {
    if (parseSaveLine(line)?.kind === "rule") rules++;
  };
  const answer = await tryTool(dependencies, [save], {
    signal,
    timeoutMs: SAVE_TIMEOUT_MS,
    onLine,
  });
  return answer.kind === "ended" ? rules : 0;
}

/** Legacy tables that are in use. */
async function legacyTables(
  { commands, timeoutMs }: ProbeDependencies,
  { family, signal }: VariantOptions,
): Promise<readonly string[]> {
  const seen = await readLegacyTables(commands, {
    family,
    mayBeRecent: true,
    ...(signal && { signal }),
    ...(timeoutMs !== undefined && { timeoutMs }),
  });
  return seen.state === "seen" ? seen.value : [];
}

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

/** The programs of one name, or the reason why they cannot be used. */
type NamedPrograms = IptablesPrograms | { readonly variant?: undefined; readonly problem: string };

/**
 * Finds the programs of both variants: by the plain name, and by the full names of variants that the
 * plain program is not. Returns at most one of each variant, the one with the plain name first, and the
 * reason why the plain name cannot be used. Throws only when the caller gave up.
 */
export async function findIptablesPrograms(
  dependencies: ProbeDependencies,
  options: VariantOptions,
): Promise<{ readonly usable: readonly IptablesPrograms[]; readonly problem?: string }> {
  const plain = await askForVersion(dependencies, plainName(options), true, options);
  const others = (["nft", "legacy"] as const).filter((variant) => variant !== plain.variant);
  const named = await Promise.all(others.map((variant) => {
    const name = `${plainName(options)}-${variant}`;
    return askForVersion(dependencies, name, false, options);
  }));
  const usable: IptablesPrograms[] = [];
  for (const found of [plain, ...named]) {
    if (found.variant === undefined) continue;
    if (!usable.some(({ variant }) => variant === found.variant)) usable.push(found);
  }
  return { usable, ...(plain.variant === undefined && { problem: plain.problem }) };
}

function plainName({ family }: VariantOptions): string {
  return family === "IPv6" ? "ip6tables" : "iptables";
}

async function askForVersion(
  dependencies: ProbeDependencies,
  name: string,
  plain: boolean,
  { signal }: VariantOptions,
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
