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
  "IPVS",
  "Kernel",
  "Network policy",
  "Health and metrics",
  "Logging",
  "Control",
  "Output",
  "Commands",
  "Retired",
] as const;

/** A group of `--help`. */
type FlagGroup = typeof FLAG_GROUPS[number];

/**
 * What a flag's text is read as: a duration becomes milliseconds, lists are split at commas. `gates`
 * are `Name=true` pairs, `vmodule` is `pattern=N` pairs.
 */
type FlagType =
  | "boolean"
  | "text"
  | "integer"
  | "number"
  | "duration"
  | "list"
  | "gates"
  | "vmodule";

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
  /** Other values that are right beside the choices. */
  readonly pattern?: RegExp;
  /** Smallest value of an integer or a duration. */
  readonly minimum?: number;
  /** Largest value of an integer. */
  readonly maximum?: number;
  /** The field of the configuration file that this flag sets, e.g. `iptables.syncPeriod`. Gives the default too. */
  readonly field?: string;
  /** Another field that it sets too, since kube-proxy has one setting there for two modes. */
  readonly alsoField?: string;
  /** The default as it would be typed, for a flag that has no field. */
  readonly default?: string;
  /** The value of a flag that is given without one; only for flags that allow that. @default `true` for booleans */
  readonly implied?: string;
  /**
   * What becomes of it when `--config` is given: kube-proxy ignores most flags then, lets a few win
   * over the file, puts one before what the file has (`merged`), and uses those that have nothing to
   * do with the file.
   */
  readonly withConfig: "ignored" | "wins" | "merged" | "used";
  /** Nothing after the sign means that it was not given, as in a manifest whose template had no value. */
  readonly emptyIsAbsent?: true;
  /** The only verbs that it belongs to. @default every verb */
  readonly verbs?: readonly string[];
  /** Said when the flag is used: why not to, and what to use in its place. */
  readonly deprecated?: string;
  /** It has no effect; `help` says why or what to use, and is said when it is used. Not in `--help`. */
  readonly retired?: true;
}

/** One pair of `--vmodule`. */
export interface VerbosityPattern {
  readonly filePattern: string;
  readonly verbosity: number;
}

/** The type of a parsed value. */
export type FlagValue<Type extends FlagType> = Type extends "boolean" ? boolean
  : Type extends "integer" | "number" | "duration" ? number
  : Type extends "list" ? readonly string[]
  : Type extends "gates" ? Readonly<Record<string, boolean>>
  : Type extends "vmodule" ? readonly VerbosityPattern[]
  : string;

/** The flag as it is typed: `-v`, `--config`. */
export function typedFlag({ name }: Flag): string {
  return name.length === 1 ? `-${name}` : `--${name}`;
}
