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
import {
  findIptablesPrograms,
  findPlainPrograms,
  type IptablesPrograms,
  readLegacyTables,
} from "./iptables_programs.ts";
import { parseSaveLine } from "./iptables_save.ts";
import { type ProbeDependencies, tryTool } from "../probe/try_tool.ts";

/** The iptables of a host, in one family. */
export interface IptablesChoice {
  readonly family: IpFamily;
  readonly programs: IptablesPrograms;
  /** The reason for the choice, for the user. */
  readonly reason: string;
}

/** The reason why no variant can be used. */
interface NoIptables {
  readonly family: IpFamily;
  readonly programs?: undefined;
  readonly problem: string;
}

/** The family to choose for. */
interface VariantOptions {
  readonly family: IpFamily;
  readonly signal?: AbortSignal | undefined;
}

const HINT = /^KUBE-(IPTABLES-HINT|KUBELET-CANARY)$/;

/** A large rule set takes a while: 40,000 rules are half a second. */
const SAVE_TIMEOUT_MS = 15_000;

/** Examines both variants without changing them. Throws only if the caller aborts. */
export async function chooseIptables(
  dependencies: ProbeDependencies,
  options: VariantOptions,
): Promise<IptablesChoice | NoIptables> {
  const { family } = options;
  const plain = await findPlainPrograms(dependencies, options);
  // Then no rule was ever written there: a look at the rules of this one would not change the choice,
  // and takes half a second at ten thousand Services.
  if (plain.variant === "nft" && (await legacyTables(dependencies, options)).length === 0) {
    const reason = "the kernel has no legacy tables; plain iptables is this one";
    return { family, programs: plain, reason };
  }
  const { usable, problem } = await findIptablesPrograms(dependencies, options);
  const [first, second] = usable;
  if (first === undefined) return { family, problem: problem ?? "no iptables was found" };
  if (second === undefined) return only(dependencies, { options, programs: first });
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

/** Chooses the only installed variant, unless the other one is in use. */
async function only(
  dependencies: ProbeDependencies,
  { options, programs }: { options: VariantOptions; programs: IptablesPrograms },
): Promise<IptablesChoice> {
  const { family } = options;
  const tables = programs.variant === "nft" ? await legacyTables(dependencies, options) : [];
  const otherTables = tables.length === 0
    ? ""
    : `; the kernel has legacy tables too (${tables.join(", ")}), which no tool here can show`;
  return { family, programs, reason: `it is the only one installed${otherTables}` };
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
