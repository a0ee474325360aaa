import type { Feature } from "./feature.ts";

/** A feature with the lines of the tool's input that need it. */
export interface Trial<Row extends Feature = Feature> {
  readonly row: Row;
  readonly lines: readonly string[];
}

/** The result of a text with the lines of some trials. */
export type Verdict =
  | { readonly kind: "accepted" }
  /** `blamed`: the indexes of the trials that the tool names; empty if it names none. */
  | {
    readonly kind: "refused";
    readonly blamed: ReadonlyMap<number, string>;
    readonly reason: string;
  }
  /** Further tests are useless, because a program hangs or has no rights. */
  | {
    readonly kind: "hopeless";
    readonly reason: string;
    readonly notPermitted: boolean;
    readonly isCrash?: boolean;
    readonly isLate?: boolean;
  };

export interface Findings<Row extends Feature> {
  /** The reason why even a text without any trial was refused. */
  readonly base?: string;
  /** The reasons why features are missing. */
  readonly reasons: ReadonlyMap<Row, string>;
  readonly notPermitted: boolean;
  /** Whether the tool crashed. @default {false} */
  readonly isCrash?: boolean;
  /** Whether the tool did not answer in time, so that nothing is known. @default {false} */
  readonly isLate?: boolean;
}

/**
 * Runs all trials at once; those that the tool blames are taken out and the rest is run again. Where
 * it blames none (legacy iptables names the COMMIT line only), each is run alone.
 */
export async function tryFeatures<Row extends Feature>(
  trials: readonly Trial<Row>[],
  attempt: (trials: readonly Trial<Row>[]) => Promise<Verdict>,
): Promise<Findings<Row>> {
  const reasons = new Map<Row, string>();
  let rest = trials;
  for (;;) {
    const verdict = await attempt(rest);
    if (verdict.kind === "accepted") return { reasons, notPermitted: false };
    if (verdict.kind === "hopeless") return hopeless(rest, { reasons, verdict });
    if (verdict.blamed.size === 0 && rest.length === 0) {
      return { base: verdict.reason, reasons, notPermitted: false };
    }
    if (verdict.blamed.size === 0) return await tryAlone(rest, { attempt, reasons });
    for (const [index, reason] of verdict.blamed) reasons.set(rest[index]!.row, reason);
    rest = rest.filter((_, index) => !verdict.blamed.has(index));
  }
}

interface Progress<Row extends Feature> {
  readonly attempt: (trials: readonly Trial<Row>[]) => Promise<Verdict>;
  readonly reasons: Map<Row, string>;
}

async function tryAlone<Row extends Feature>(
  trials: readonly Trial<Row>[],
  { attempt, reasons }: Progress<Row>,
): Promise<Findings<Row>> {
  const empty = await attempt([]);
  if (empty.kind === "hopeless") return hopeless(trials, { reasons, verdict: empty });
  if (empty.kind === "refused") {
    for (const { row } of trials) reasons.set(row, empty.reason);
    return { base: empty.reason, reasons, notPermitted: false };
  }
  for (const [index, trial] of trials.entries()) {
    const verdict = await attempt([trial]);
    if (verdict.kind === "hopeless") {
      return hopeless(trials.slice(index), { reasons, verdict });
    }
    if (verdict.kind === "refused") reasons.set(trial.row, verdict.blamed.get(0) ?? verdict.reason);
  }
  return { reasons, notPermitted: false };
}

function hopeless<Row extends Feature>(
  rest: readonly Trial<Row>[],
  { reasons, verdict: { reason, ...why } }: {
    readonly reasons: Map<Row, string>;
    readonly verdict: Verdict & { readonly kind: "hopeless" };
  },
): Findings<Row> {
  for (const { row } of rest) reasons.set(row, reason);
  return { base: reason, reasons, ...why };
}

/** The verdict on a program that gave none. */
export function noAnswer(
  { kind, reason }: { readonly kind: string; readonly reason: string },
): Verdict {
  const [isCrash, isLate] = [kind === "crashed", kind === "stuck"];
  return { kind: "hopeless", reason, notPermitted: false, isCrash, isLate };
}

/** Returns the trial of each line, given the number of lines before the first. */
export function trialOfLine(
  trials: readonly Trial[],
  { line, before }: { readonly line: number; readonly before: number },
): number | undefined {
  let first = before + 1;
  for (const [index, { lines }] of trials.entries()) {
    if (line >= first && line < first + lines.length) return index;
    first += lines.length;
  }
  return undefined;
}
