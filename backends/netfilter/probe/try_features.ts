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
 * Runs all trials at once. If they are refused, an empty text is run, and then the trials are halved
 * until each refused one is run alone: not every tool names the line that it refuses.
 */
export async function tryFeatures<Row extends Feature>(
  trials: readonly Trial<Row>[],
  attempt: (trials: readonly Trial<Row>[]) => Promise<Verdict>,
): Promise<Findings<Row>> {
  const reasons = new Map<Row, string>();
  const hopeless = (
    { reason, notPermitted = false, ...why }: { reason: string } & Partial<Findings<Row>>,
    untried = trials,
  ) => {
    for (const { row } of untried) reasons.set(row, reason);
    return { base: reason, reasons, notPermitted, ...why };
  };
  const all = await attempt(trials);
  if (all.kind === "hopeless") return hopeless(all);
  if (all.kind === "accepted") return { reasons, notPermitted: false };
  const empty = await attempt([]);
  if (empty.kind !== "accepted") return hopeless(empty);
  const groups = [{ group: trials, isFirstHalf: false }];
  let isKnownRefused = true;
  for (let next = groups.shift(); next !== undefined; next = groups.shift()) {
    const { group, isFirstHalf } = next;
    const [trial, ...more] = group;
    if (trial === undefined) continue;
    const verdict: Verdict = isKnownRefused && more.length > 0 ? all : await attempt(group);
    if (verdict.kind === "hopeless") {
      return hopeless(verdict, [group, ...groups.map(({ group }) => group)].flat());
    }
    // Then the other half, which is next, has what was refused in both.
    isKnownRefused = verdict.kind === "accepted" && isFirstHalf;
    if (verdict.kind === "accepted") continue;
    if (more.length === 0) reasons.set(trial.row, verdict.reason);
    else {
      const middle = group.length >> 1;
      groups.unshift(
        { group: group.slice(0, middle), isFirstHalf: true },
        { group: group.slice(middle), isFirstHalf: false },
      );
    }
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
