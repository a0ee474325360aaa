import type { Feature } from "./feature.ts";

/** A feature with the lines of the tool's input that need it. */
export interface Trial<Row extends Feature = Feature> {
  readonly row: Row;
  readonly lines: readonly string[];
}

/** The result of a text with the lines of some trials. */
export type Verdict =
  | { readonly kind: "accepted" }
  | { readonly kind: "refused"; readonly reason: string }
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
 * Runs all trials at once. If they are refused, an empty text and then each trial are run alone: not
 * every tool names the line that it refuses.
 */
export async function tryFeatures<Row extends Feature>(
  trials: readonly Trial<Row>[],
  attempt: (trials: readonly Trial<Row>[]) => Promise<Verdict>,
): Promise<Findings<Row>> {
  const reasons = new Map<Row, string>();
  const hopeless = (
    { reason, notPermitted = false, ...why }: { reason: string } & Partial<Findings<Row>>,
    first = 0,
  ) => {
    for (const { row } of trials.slice(first)) reasons.set(row, reason);
    return { base: reason, reasons, notPermitted, ...why };
  };
  const all = await attempt(trials);
  if (all.kind === "hopeless") return hopeless(all);
  if (all.kind === "accepted") return { reasons, notPermitted: false };
  const empty = await attempt([]);
  if (empty.kind !== "accepted") return hopeless(empty);
  for (const [index, trial] of trials.entries()) {
    const verdict = await attempt([trial]);
    if (verdict.kind === "hopeless") return hopeless(verdict, index);
    if (verdict.kind === "refused") reasons.set(trial.row, verdict.reason);
  }
  return { reasons, notPermitted: false };
}

/** The verdict on a program that gave none. */
export function noAnswer(
  { kind, reason }: { readonly kind: string; readonly reason: string },
): Verdict {
  const [isCrash, isLate] = [kind === "crashed", kind === "stuck"];
  return { kind: "hopeless", reason, notPermitted: false, isCrash, isLate };
}
