/**
 * Determines the features of a host's iptables, for the modes that write its rules, in a chain that no
 * packet enters. Leaves nothing behind.
 *
 * iptables-nft sends a table as one transaction. So a text that ends in a refused operation
 * (deleting a chain that is in use) has each rule checked and none kept: not even the table is
 * created, and the tool names every refused line. iptables-legacy refuses that text itself, and
 * its `--test` asks the kernel only for the names of extensions. There the chain is really
 * created, and removed by the same input.
 *
 * @module
 */
import { IP_FAMILIES, type IpFamily } from "../../../lib/net/ip_address.ts";
import type { ProbeResult } from "../../../lib/proxy/service_mode.ts";
import {
  attempt,
  type Bench,
  type Feature,
  type Findings,
  NO_RIGHTS,
  noAnswer,
  probeResult,
  refusedOnce,
  tryFeatures,
  type Verdict,
} from "../probe/try_features.ts";
import {
  firstLine,
  type ProbeDependencies,
  saysLocked,
  saysNotPermitted,
} from "../probe/try_tool.ts";
import type { RuleFeature, TableFeature } from "./iptables_features.ts";
import { chooseIptables, type IptablesChoice, type IptablesPrograms } from "./iptables_variant.ts";

/** The features of iptables that a mode needs. */
interface IptablesNeeds {
  readonly tables: readonly TableFeature[];
  readonly rules: readonly RuleFeature[];
  readonly signal?: AbortSignal | undefined;
  /** Whether tables may be created, because a mode is about to write to them. @default {false} */
  readonly mayAddTables?: boolean;
}

const PROGRAMS: Feature = {
  feature: "iptables",
  required: true,
  lost: "No rule can be written",
  broughtBy: "install iptables 1.6.2 or newer (Debian package iptables), or name the folder that " +
    "has it by --tools-path",
};

/** The message of iptables-legacy without permission; it then asks the kernel for nothing. */
const LOCK_FILE = /can't open lock file/;
const LOCK_FILE_CURE = "it has to be the file of the host, and writable";

/** The same names in all runs, so that the next probe removes the leftovers of a killed one. */
const SCRATCH_CHAIN = "KUBE-RELAY-PROBE";
/** The chain whose deletion the kernel refuses. */
const HELD_CHAIN = "KUBE-RELAY-PROBE-HELD";

/**
 * Maximum wait for `/run/xtables.lock`; the legacy tools would wait forever. Longer than that of a
 * sync, which is retried: this probe determines mode and families for the life of the process, and
 * during boot the lock may be held for seconds.
 */
const LOCK_WAIT_S = 30;
/** Maximum time of a trial: with the legacy variant longer than the wait for the lock. */
const TIMEOUT_MS = { nft: 8_000, legacy: 33_000 } as const;

/** Tests all features in both families. Throws only if the caller aborts. */
export async function probeIptables(
  dependencies: ProbeDependencies,
  needs: IptablesNeeds,
): Promise<readonly ProbeResult[]> {
  const { signal } = needs;
  const families = await Promise.all(IP_FAMILIES.map(async (family) => {
    const choice = await chooseIptables(dependencies, { family, signal });
    if (choice.programs) return await probeChosenIptables(dependencies, choice, needs);
    return [probeResult(PROGRAMS, { reason: choice.problem, family })];
  }));
  return refusedOnce(families.flat());
}

/** Tests all features with the chosen programs. Throws only if the caller aborts. */
export async function probeChosenIptables(
  dependencies: ProbeDependencies,
  { family, programs, reason }: IptablesChoice,
  { tables, rules, signal, mayAddTables = false }: IptablesNeeds,
): Promise<readonly ProbeResult[]> {
  const { variant, restore, version } = programs;
  const rows = [probeResult(PROGRAMS, { detail: `${restore} ${version}; ${reason}`, family })];
  // The usual machine lacks nothing. The tools of legacy create every table that they are given.
  const whole = mayAddTables || variant === "legacy"
    ? await attempt(dependencies, wholeBench(programs, family, tables), rules, signal)
    : undefined;
  const takesAll = whole?.kind === "accepted";
  if (whole?.kind === "hopeless" && whole.isLate) {
    // Each trial of a table would wait as long.
    const { reason, isLate } = whole;
    return [...rows, ...tables.map((table) => probeResult(table, { reason, family, isLate }))];
  }
  for (const table of tables) {
    const own = rules.filter((rule) => rule.table === table.table);
    const { base, reasons, notPermitted, isLate }: Findings<RuleFeature> = takesAll
      ? { reasons: new Map() }
      : await tryFeatures(dependencies, tableBench(programs, family, table.table), own, signal);
    if (notPermitted) return [...rows, NO_RIGHTS];
    if (base !== undefined) {
      // A table that is missing says it all: its matches and targets could not be tried.
      const cure = LOCK_FILE.test(base) ? LOCK_FILE_CURE : undefined;
      rows.push(probeResult(table, { reason: base, family, cure, isLate }));
      continue;
    }
    rows.push(
      probeResult(table, { family }),
      ...own.map((rule) => probeResult(rule, { reason: reasons.get(rule), family })),
    );
  }
  return rows;
}

/** Tries rules of several tables in one run. A table that iptables-nft creates stays. */
function wholeBench(
  programs: IptablesPrograms,
  family: IpFamily,
  tables: readonly TableFeature[],
): Bench<RuleFeature> {
  return {
    ...commonBench(programs, tables.map(({ table }) => table)),
    input: (rules) =>
      toText(tables.flatMap(({ table }) => [
        ...[`*${table}`, `:${SCRATCH_CHAIN} - [0:0]`],
        ...linesOf(rules.filter((rule) => rule.table === table), family),
        // To iptables-nft, both are one transaction: the chain never exists.
        ...(programs.variant === "nft" ? [] : ["COMMIT", `*${table}`]),
        ...[`-F ${SCRATCH_CHAIN}`, `-X ${SCRATCH_CHAIN}`, "COMMIT"],
      ])),
    judge: ({ out, err }) => lockedVerdict(`${err}\n${out}`),
  };
}

/** Tries rules of one table. */
function tableBench(
  programs: IptablesPrograms,
  family: IpFamily,
  table: string,
): Bench<RuleFeature> {
  const isNft = programs.variant === "nft";
  const head = [`*${table}`, `:${SCRATCH_CHAIN} - [0:0]`];
  return {
    ...commonBench(programs, [table]),
    input(rules) {
      const lines = linesOf(rules, family);
      const held = [`:${HELD_CHAIN} - [0:0]`, `-A ${SCRATCH_CHAIN} -j ${HELD_CHAIN}`];
      return toText(
        isNft ? [...head, ...held, ...lines, `-X ${HELD_CHAIN}`, "COMMIT"] : [
          ...[...head, ...lines, "COMMIT"],
          ...[`*${table}`, `-F ${SCRATCH_CHAIN}`, `-X ${SCRATCH_CHAIN}`, "COMMIT"],
        ],
      );
    },
    judge({ code, out, err }, rules) {
      // iptables-nft kept what it should have refused, so the chains exist now.
      if (code === 0) return { kind: "accepted", isLeft: isNft };
      const words = `${err}\n${out}`;
      if (saysNotPermitted(words)) return undefined;
      const locked = lockedVerdict(words);
      if (locked) return locked;
      const isHeld = isNft && /CHAIN_DEL failed/.test(words);
      const complaints = complaintsIn(words)
        .filter(({ reason }) => !(isNft && reason.startsWith("CHAIN_DEL failed")));
      if (isHeld && complaints.length === 0) return { kind: "accepted" };
      // The kernel took the rules; another probe at the same time has removed the chain.
      const isFilled = !isNft &&
        complaints.some(({ line }) => line > head.length + rules.length + 1);
      if (isFilled) return { kind: "accepted", isLeft: true };
      const reason = complaints[0]?.reason || firstLine(words);
      return { kind: "refused", reason: reason || `exit code ${code}, no word why` };
    },
  };
}

function commonBench({ variant, restore }: IptablesPrograms, tables: readonly string[]) {
  return {
    line: [restore, "--noflush", "-w", `${LOCK_WAIT_S}`],
    timeoutMs: TIMEOUT_MS[variant],
    mayBeRecent: true,
    // One by one: a line about a missing chain makes the tool refuse the whole text.
    undo: tables.flatMap((table) =>
      [SCRATCH_CHAIN, HELD_CHAIN].map((chain) =>
        toText([`*${table}`, `-F ${chain}`, `-X ${chain}`, "COMMIT"])
      )
    ),
  } as const;
}

function lockedVerdict(words: string): Verdict | undefined {
  if (!saysLocked(words)) return undefined;
  const reason = `another program held /run/xtables.lock for ${LOCK_WAIT_S} s: try again`;
  return noAnswer({ kind: "stuck", reason });
}

function linesOf(rules: readonly RuleFeature[], family: IpFamily): readonly string[] {
  const destination = family === "IPv4" ? "192.0.2.1:80" : "[2001:db8::1]:80";
  return rules.map(({ rule }) =>
    `-A ${SCRATCH_CHAIN} ${rule.replace("{destination}", destination)}`
  );
}

function toText(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join("");
}

/**
 * Lines that a tool names: `line 6: RULE_APPEND failed (No such file or directory): …` of the kernel,
 * `… Couldn't load match 'x' … Error occurred at line: 3` of the parser, `line 4 failed` of legacy.
 */
function complaintsIn(
  words: string,
): readonly { readonly line: number; readonly reason: string }[] {
  const judged = [...words.matchAll(/line (\d+): (\w+) failed \((.*?)\)/g)]
    .map(([, line, what, reason]) => ({ line: Number(line), reason: `${what} failed: ${reason}` }));
  if (judged.length > 0) return judged;
  const [, line] = /line:? (\d+)/.exec(words) ?? [];
  if (line === undefined) return [];
  // The parser's message, without the name and version of the program.
  const said = words.split("\n").find((each) => /^\S+ v\d.*?: ./.test(each)) ?? words;
  return [{ line: Number(line), reason: firstLine(said.replace(/^\S+ v[\d.]+ \(\w+\): /, "")) }];
}
