/**
 * Probes iptables rules in a chain that no packet enters, and leaves nothing behind.
 *
 * iptables-nft sends a table as one transaction. So a text that ends in a refused operation
 * (deleting a chain that is in use) has each rule checked and none kept: not even the table is
 * created, and the tool names every refused line. iptables-legacy refuses that text itself, and
 * its `--test` asks the kernel only for the names of extensions. There the chain is really
 * created, and removed by the same input.
 *
 * @module
 */
import type { IptablesVariant } from "../iptables/iptables_programs.ts";
import type { Feature } from "./feature.ts";
import { noAnswer, type Trial, type Verdict } from "./try_features.ts";
import {
  firstLine,
  type ProbeDependencies,
  saysNotPermitted,
  type ToolAnswer,
  tryTool,
} from "./try_tool.ts";

/** The same name in all runs, so that the next probe removes the leftovers of a killed one. */
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
const TIMEOUT_MS: Readonly<Record<IptablesVariant, number>> = { nft: 8_000, legacy: 33_000 };

/** A rule of one table, to be tried in the scratch chain. */
export interface RuleFeature extends Feature {
  readonly table: string;
  /** The rule, without `-A` and the chain. */
  readonly rule: string;
}

/** The engine, chains and sets in which rules are tried. */
interface IptablesScratch {
  readonly variant: IptablesVariant;
  /** Name of the restore program. */
  readonly restore: string;
  readonly table: string;
  readonly signal?: AbortSignal | undefined;
}

/** The trial of a rule. */
export function ruleTrial<Row extends RuleFeature>(row: Row): Trial<Row> {
  return { row, lines: [`-A ${SCRATCH_CHAIN} ${row.rule}`] };
}

/** Trials of one table. */
interface TableTrials {
  readonly table: string;
  readonly trials: readonly Trial[];
}

/**
 * Whether the kernel takes the rules of all trials, by one run for several tables. If not, the caller
 * has to try each table. A table that iptables-nft creates stays. Throws only when the caller gave up.
 */
export async function takesAllRules(
  dependencies: ProbeDependencies,
  { variant, ...scratch }: Omit<IptablesScratch, "table">,
  groups: readonly TableTrials[],
): Promise<boolean> {
  const text = groups.flatMap(({ table, trials }) => [
    ...[`*${table}`, `:${SCRATCH_CHAIN} - [0:0]`, ...trials.flatMap(({ lines }) => lines)],
    // To iptables-nft, both are one transaction: the chain never exists.
    ...(variant === "nft" ? [] : ["COMMIT", `*${table}`]),
    ...[`-F ${SCRATCH_CHAIN}`, `-X ${SCRATCH_CHAIN}`, "COMMIT"],
  ]).map((line) => `${line}\n`).join("");
  const tables = groups.map(({ table }) => table);
  const answer = await restore(dependencies, { ...scratch, variant, tables }, text);
  return answer.kind === "ended" && answer.code === 0;
}

/** Gives the rules of all trials to the kernel once. Throws only when the caller gave up. */
export async function attemptRules(
  dependencies: ProbeDependencies,
  scratch: IptablesScratch,
  trials: readonly Trial[],
): Promise<Verdict> {
  const { lastLine, text } = scratchText(scratch, trials);
  const tables = [scratch.table];
  const answer = await restore(dependencies, { ...scratch, tables }, text);
  if (answer.kind !== "ended") return noAnswer(answer);
  const { code, out, err } = answer;
  const words = `${err}\n${out}`;
  if (code === 0) {
    // The tool kept what it should have refused, so the chains exist now.
    if (scratch.variant === "nft") await removeScratch(dependencies, scratch);
    return { kind: "accepted" };
  }
  if (saysNotPermitted(words)) {
    return { kind: "hopeless", reason: firstLine(words), notPermitted: true };
  }
  if (/xtables lock/.test(words)) {
    const reason = `another program held /run/xtables.lock for ${LOCK_WAIT_S} s: try again`;
    return noAnswer({ kind: "stuck", reason });
  }
  const complaints = complaintsIn(words).filter(({ reason }) => !isExpected(scratch, reason));
  if (complaints.some(({ line }) => line > lastLine)) {
    // The kernel took the rules; another probe at the same time has removed the chain.
    await removeScratch(dependencies, scratch);
    return { kind: "accepted" };
  }
  const isJudged = scratch.variant === "nft" && /CHAIN_DEL failed/.test(words);
  if (isJudged && complaints.length === 0) return { kind: "accepted" };
  const reason = complaints[0]?.reason ?? (firstLine(words) || `exit code ${code}, no word why`);
  return { kind: "refused", reason };
}

async function restore(
  dependencies: ProbeDependencies,
  { tables, ...scratch }: Omit<IptablesScratch, "table"> & { readonly tables: readonly string[] },
  stdin: string,
): Promise<ToolAnswer> {
  const { restore: program, variant, signal } = scratch;
  const timeoutMs = TIMEOUT_MS[variant];
  const line = [program, "--noflush", "-w", `${LOCK_WAIT_S}`] as const;
  let known = false;
  try {
    const answer = await tryTool(dependencies, line, {
      ...{ stdin, timeoutMs, signal },
      mayBeRecent: true,
    });
    known = answer.kind === "ended" || answer.kind === "missing";
    return answer;
  } finally {
    // Killed or cancelled half-way: the chain may exist.
    if (!known) {
      for (const table of tables) await removeScratch(dependencies, { ...scratch, table });
    }
  }
}

async function removeScratch(
  dependencies: ProbeDependencies,
  { restore: program, table, variant }: IptablesScratch,
): Promise<void> {
  // Chains are tried one by one: a line about a missing chain makes the tool refuse the whole text.
  for (const chain of [SCRATCH_CHAIN, HELD_CHAIN]) {
    const stdin = `*${table}\n-F ${chain}\n-X ${chain}\nCOMMIT\n`;
    const line = [program, "--noflush", "-w", `${LOCK_WAIT_S}`] as const;
    await tryTool(dependencies, line, { stdin, timeoutMs: TIMEOUT_MS[variant] });
  }
}

function scratchText(
  { variant, table }: IptablesScratch,
  trials: readonly Trial[],
): { readonly lastLine: number; readonly text: string } {
  const rules = trials.flatMap(({ lines }) => lines);
  const head = [`*${table}`, `:${SCRATCH_CHAIN} - [0:0]`];
  const held = [`:${HELD_CHAIN} - [0:0]`, `-A ${SCRATCH_CHAIN} -j ${HELD_CHAIN}`];
  const lines = variant === "nft" ? [...head, ...held, ...rules, `-X ${HELD_CHAIN}`, "COMMIT"] : [
    ...[...head, ...rules, "COMMIT"],
    ...[`*${table}`, `-F ${SCRATCH_CHAIN}`, `-X ${SCRATCH_CHAIN}`, "COMMIT"],
  ];
  return {
    // The end of the part that creates and fills the chain.
    lastLine: lines.indexOf("COMMIT") + 1,
    text: lines.map((line) => `${line}\n`).join(""),
  };
}

interface Complaint {
  readonly line: number;
  readonly reason: string;
}

/**
 * Lines that a tool names: `line 6: RULE_APPEND failed (No such file or directory): …` of the kernel,
 * `… Couldn't load match 'x' … Error occurred at line: 3` of the parser, `line 4 failed` of legacy.
 */
function complaintsIn(words: string): readonly Complaint[] {
  const judged = [...words.matchAll(/line (\d+): (\w+) failed \((.*?)\)/g)]
    .map(([, line, what, reason]) => ({ line: Number(line), reason: `${what} failed: ${reason}` }));
  if (judged.length > 0) return judged;
  const [, line] = /line:? (\d+)/.exec(words) ?? [];
  return line === undefined ? [] : [{ line: Number(line), reason: parserReason(words) }];
}

/** The parser's message, without the name and version of the program. */
function parserReason(words: string): string {
  const line = words.split("\n").find((each) => /^\S+ v\d.*?: ./.test(each)) ?? words;
  return firstLine(line.replace(/^\S+ v[\d.]+ \(\w+\): /, ""));
}

function isExpected({ variant }: IptablesScratch, reason: string): boolean {
  return variant === "nft" && reason.startsWith("CHAIN_DEL failed");
}
