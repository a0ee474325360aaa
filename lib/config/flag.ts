/**
 * What a command line flag is.
 *
 * @module
 */

/** The groups of `--help`, in its order. */
export const FLAG_GROUPS = [
  "Cluster",
  "Node and addresses",
  "Proxying",
  "Health and metrics",
  "Logging",
  "Control",
  "Output",
  "Commands",
] as const;

/** A group of `--help`. */
export type FlagGroup = typeof FLAG_GROUPS[number];

/** What a flag's text is read as: a duration becomes milliseconds, a list is split at commas. */
export type FlagType = "boolean" | "text" | "integer" | "duration" | "list";

/** One row of the table in `flags.ts`. Everything else about flags follows from it. */
export interface Flag {
  /** Name without the dashes, words joined by `-`. */
  readonly name: string;
  /** Other names for the same. */
  readonly aliases?: readonly string[];
  readonly type: FlagType;
  readonly group: FlagGroup;
  /** Meaning, in one or two clauses without a full stop. */
  readonly help: string;
  /** What stands for the value in help texts. */
  readonly value?: string;
  /** The only values that are right. */
  readonly choices?: readonly string[];
  /** Smallest value of an integer or a duration. */
  readonly minimum?: number;
  /** Largest value of an integer. */
  readonly maximum?: number;
  /** The field of the configuration file that this flag sets, e.g. `iptables.syncPeriod`. Gives the default too. */
  readonly field?: string;
  /** The default as it would be typed, for a flag that has no field. */
  readonly default?: string;
  /** The value of a flag that is given without one; only for flags that allow that. @default `true` for booleans */
  readonly implied?: string;
  /**
   * What becomes of it when `--config` is given: kube-proxy ignores most flags then, lets a few win
   * over the file, and uses those that have nothing to do with the file.
   */
  readonly withConfig: "ignored" | "wins" | "used";
  /** The only verbs that it belongs to. @default every verb */
  readonly verbs?: readonly string[];
  /** Said when the flag is used: why not to, and what to use in its place. */
  readonly deprecated?: string;
}

/** The type of a parsed value. */
export type FlagValue<Type extends FlagType> = Type extends "boolean" ? boolean
  : Type extends "integer" | "duration" ? number
  : Type extends "list" ? readonly string[]
  : string;

/** The flag as it is typed: `-v`, `--config`. */
export function typedFlag({ name }: Flag): string {
  return name.length === 1 ? `-${name}` : `--${name}`;
}
