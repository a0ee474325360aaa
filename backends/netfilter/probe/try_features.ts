/**
 * Tries the features of tools: the rows of a table, each with the lines of a tool's input that need it,
 * are given to the tool at once. If it refuses them, halves are tried until each refused row is found:
 * not every tool names the line that it refuses.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { ProbeResult } from "../../../lib/proxy/service_mode.ts";
import { isAtLeast, parseVersion, type Version, versionText } from "./tool_version.ts";
import {
  firstLine,
  type ProbeDependencies,
  saysLocked,
  saysNotPermitted,
  type ToolAnswer,
  tryTool,
} from "./try_tool.ts";

/** A feature that a mode uses. */
export interface Feature {
  /** The name, e.g. `match conntrack`. */
  readonly feature: string;
  /** Whether the mode needs it to work at all. */
  readonly required: boolean;
  /** The consequence of its absence, as a sentence without a full stop. */
  readonly lost: string;
  /** The remedy: a package, kernel module or kernel option. */
  readonly broughtBy: string;
}

/** The row of a report. Without `reason` the feature is available. */
export function probeResult(
  { feature, required, lost, broughtBy }: Feature,
  { reason, detail = "works", family, cure = broughtBy, isLate }: {
    readonly reason?: string | undefined;
    readonly detail?: string | undefined;
    readonly family?: IpFamily | undefined;
    /** A more specific remedy than that of the feature. */
    readonly cure?: string | undefined;
    /** Whether the tool did not answer in time. */
    readonly isLate?: boolean | undefined;
  } = {},
): ProbeResult {
  const row = { feature, required, ...(family !== undefined && { family }) };
  return reason === undefined
    ? { ...row, available: true, detail }
    : { ...row, available: false, detail: reason, cure, lost, ...(isLate && { isLate }) };
}

/** Reported once for a mode, instead of the features that could not be tried. */
export const NO_RIGHTS: ProbeResult = probeResult({
  feature: "right to change packet filters",
  required: true,
  lost: "Nothing can be tested, and no rule can be written",
  broughtBy: "run as root or with CAP_NET_ADMIN and CAP_NET_RAW",
}, { reason: "not permitted (needs root / CAP_NET_ADMIN)" });

/** The rows with {@linkcode NO_RIGHTS} once, at the end. */
export function refusedOnce(rows: readonly ProbeResult[]): readonly ProbeResult[] {
  if (!rows.includes(NO_RIGHTS)) return rows;
  return [...rows.filter((row) => row !== NO_RIGHTS), NO_RIGHTS];
}

type EndedAnswer = Extract<ToolAnswer, { kind: "ended" }>;

/** A tool that reads lines, and leaves nothing of those that need the features of some rows. */
export interface Bench<Row> {
  readonly line: readonly [program: string, ...args: string[]];
  /** The input that needs these features; without any, the least that the tool works with. */
  input(rows: readonly Row[]): string;
  /** Inputs that remove what a run leaves if it does not end. Each may fail. @default {it leaves nothing} */
  readonly undo?: readonly string[];
  readonly timeoutMs?: number;
  readonly mayBeRecent?: boolean;
  /** Reads an answer; `undefined` = as by the exit code. */
  judge?(answer: EndedAnswer, rows: readonly Row[]): Verdict | undefined;
}

/** What a tool said to some rows. */
export type Verdict =
  /** `isLeft`: objects remain that have to be removed. */
  | { readonly kind: "accepted"; readonly isLeft?: boolean }
  | { readonly kind: "refused"; readonly reason: string }
  /** Further tests are useless, because a program hangs or has no rights. */
  | ({ readonly kind: "hopeless"; readonly reason: string } & Hindrance);

interface Hindrance {
  readonly notPermitted?: boolean;
  /** Whether the tool crashed. */
  readonly isCrash?: boolean;
  /** Whether the tool did not answer in time, so that nothing is known. */
  readonly isLate?: boolean;
}

/** What was found out about rows. */
export interface Findings<Row> extends Hindrance {
  /** The reason why even an input without any row was refused, or why nothing more was tried. */
  readonly base?: string;
  /** The reasons why features are missing. */
  readonly reasons: ReadonlyMap<Row, string>;
}

/** Tries all rows. Throws only if the caller aborts. */
export async function tryFeatures<Row>(
  dependencies: ProbeDependencies,
  bench: Bench<Row>,
  rows: readonly Row[],
  signal?: AbortSignal,
): Promise<Findings<Row>> {
  const reasons = new Map<Row, string>();
  let end: Exclude<Verdict, { kind: "accepted" }> | undefined;
  const search = async (some: readonly Row[], known?: Verdict): Promise<boolean> => {
    const verdict = end ?? known ?? await attempt(dependencies, bench, some, signal);
    if (verdict.kind === "accepted") return false;
    if (verdict.kind === "hopeless") end = verdict;
    if (end !== undefined || some.length <= 1) {
      for (const row of some) reasons.set(row, verdict.reason);
      return true;
    }
    const middle = some.length >> 1;
    const isFirstRefused = await search(some.slice(0, middle));
    // Else the second half has what was refused in both.
    const isKnown = !isFirstRefused && some.length - middle > 1;
    await search(some.slice(middle), isKnown ? verdict : undefined);
    return true;
  };
  const all = await attempt(dependencies, bench, rows, signal);
  if (all.kind === "refused") {
    const empty = await attempt(dependencies, bench, [], signal);
    if (empty.kind !== "accepted") end = empty;
  }
  await search(rows, all);
  if (end === undefined) return { reasons };
  const { kind: _, reason: base, ...why } = end;
  return { base, reasons, ...why };
}

/** Gives the input of some rows to the tool once. Throws only if the caller aborts. */
export async function attempt<Row>(
  dependencies: ProbeDependencies,
  bench: Bench<Row>,
  rows: readonly Row[],
  signal?: AbortSignal,
): Promise<Verdict> {
  const { line, undo = [], timeoutMs, mayBeRecent = false } = bench;
  const options = { ...(timeoutMs !== undefined && { timeoutMs }) };
  const run = () =>
    tryTool(dependencies, line, { stdin: bench.input(rows), mayBeRecent, signal, ...options });
  const removeAll = async () => {
    for (const stdin of undo) {
      const answer = await tryTool(dependencies, line, { stdin, ...options });
      // The next one would wait as long. The next probe removes what is left.
      if (answer.kind !== "ended" || saysLocked(answer.err)) return;
    }
  };
  let isClean = false;
  try {
    let answer = await run();
    if (
      undo.length > 0 && answer.kind === "ended" && /File exists|lready exists/.test(answer.err)
    ) {
      // A killed probe left it.
      await removeAll();
      answer = await run();
    }
    isClean = answer.kind === "ended" || answer.kind === "missing";
    if (answer.kind !== "ended") return noAnswer(answer);
    const verdict = bench.judge?.(answer, rows) ?? judgeExit(line[0], answer);
    if (verdict.kind === "accepted" && verdict.isLeft) isClean = false;
    return verdict;
  } finally {
    // Killed or cancelled halfway: objects may exist.
    if (!isClean) await removeAll();
  }
}

function judgeExit(program: string, { code, out, err }: EndedAnswer): Verdict {
  if (code === 0) return { kind: "accepted" };
  const words = `${err}\n${out}`;
  if (saysNotPermitted(words)) {
    return { kind: "hopeless", reason: firstLine(words), notPermitted: true };
  }
  const reason = firstLine(words.replace(/^.*?(?:Error|line \d+): /s, ""));
  return { kind: "refused", reason: reason || `${program} ended with ${code} and no word why` };
}

/** The verdict on a program that gave none. */
export function noAnswer(
  { kind, reason }: { readonly kind: string; readonly reason: string },
): Verdict {
  return { kind: "hopeless", reason, isCrash: kind === "crashed", isLate: kind === "stuck" };
}

/** Probes a program by its version. Throws only if the caller aborts. */
export async function probeProgram(
  dependencies: ProbeDependencies,
  row: Feature,
  program: string,
  { least, signal }: {
    readonly least: Version;
    readonly signal?: AbortSignal | undefined;
  },
): Promise<ProbeResult> {
  const answer = await tryTool(dependencies, [program, "--version"], { signal });
  if (answer.kind !== "ended") return probeResult(row, { reason: answer.reason });
  const version = parseVersion(answer.out);
  if (answer.code !== 0 || version === undefined) {
    const said = firstLine(answer.err) || firstLine(answer.out) || "nothing";
    return probeResult(row, { reason: `${program} --version printed no version, but: ${said}` });
  }
  const detail = `version ${versionText(version)}`;
  if (isAtLeast(version, least)) return probeResult(row, { detail });
  return probeResult(row, { reason: `${detail} is older than ${versionText(least)}` });
}

const CONNTRACK: Feature = {
  feature: "conntrack",
  required: false,
  lost: "UDP flows to removed endpoints stay until they time out",
  broughtBy: "install conntrack (Debian package conntrack); it needs CAP_NET_ADMIN and the " +
    "kernel's CONFIG_NF_CT_NETLINK",
};

const SYSCTL: Feature = {
  feature: "sysctl",
  required: false,
  lost: "Kernel settings are neither checked nor set",
  broughtBy: "install sysctl (Debian package procps)",
};

const BRIDGE_SETTING = "net.bridge.bridge-nf-call-iptables";
const BRIDGE: Feature = {
  feature: "bridged traffic passes the rules",
  required: false,
  lost:
    "If pods are attached to a bridge, a Service whose endpoint is on the same node may not answer",
  broughtBy: `modprobe br_netfilter && sysctl -w ${BRIDGE_SETTING}=1`,
};

/** Probes the optional tools of all kernel modes. Throws only if the caller aborts. */
export async function probeSharedTools(
  dependencies: ProbeDependencies,
  signal?: AbortSignal,
): Promise<readonly ProbeResult[]> {
  const [counted, sysctl] = await Promise.all([
    // Counting is fast and needs the same permission as deleting.
    tryTool(dependencies, ["conntrack", "-C"], { signal }),
    tryTool(dependencies, ["sysctl", "-n", BRIDGE_SETTING], { signal }),
  ]);
  const rows: ProbeResult[] = [];
  if (counted.kind !== "ended") rows.push(probeResult(CONNTRACK, { reason: counted.reason }));
  else if (counted.code === 0) {
    rows.push(probeResult(CONNTRACK, { detail: `${firstLine(counted.out)} entries now` }));
  } else if (!saysNotPermitted(counted.err)) {
    // Missing permission is reported once, by the row of the rights.
    const reason = firstLine(counted.err) || `exit code ${counted.code}, no word why`;
    rows.push(probeResult(CONNTRACK, { reason }));
  }
  if (sysctl.kind !== "ended") return [...rows, probeResult(SYSCTL, { reason: sysctl.reason })];
  const value = sysctl.out.trim();
  const said = value === "" ? "br_netfilter is not loaded" : `${BRIDGE_SETTING} is ${value}`;
  const bridge = probeResult(BRIDGE, value === "1" ? { detail: said } : { reason: said });
  return [...rows, probeResult(SYSCTL), bridge];
}
