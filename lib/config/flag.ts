/** The groups of `--help`, in its order. */
export const FLAG_GROUPS = [
  "Cluster",
  "Node and addresses",
  "Proxying",
  "IPVS",
  "Kernel",
  "Network policy",
  "Routing",
  "Health and metrics",
  "Logging",
  "Control",
  "Output",
  "Commands",
  "Retired",
] as const;

/** A group of `--help`. */
export type FlagGroup = typeof FLAG_GROUPS[number];

/**
 * The type of a flag's value: a duration becomes milliseconds, lists are split at commas. `gates`
 * are `Name=true` pairs, `vmodule` is `pattern=N` pairs.
 */
export type FlagType =
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
  /** Other names of the same flag. */
  readonly aliases?: readonly string[];
  readonly type: FlagType;
  readonly group: FlagGroup;
  /** Meaning, in one or two clauses without a full stop. */
  readonly help: string;
  /** The placeholder of the value in help texts. */
  readonly value?: string;
  /** The only valid values. */
  readonly choices?: readonly string[];
  /** Further valid values besides the choices. */
  readonly pattern?: RegExp;
  /** The values of the pattern, for help and errors. */
  readonly patternHelp?: string;
  /** Smallest value of an integer or a duration. */
  readonly minimum?: number;
  /** Largest value of an integer. */
  readonly maximum?: number;
  /**
   * The field of the configuration file that this flag sets, e.g. `iptables.syncPeriod`. It also
   * gives the default.
   */
  readonly field?: string;
  /** Another field that the flag also sets, because kube-proxy has one setting for two modes. */
  readonly alsoField?: string;
  /** The default as text, for a flag without a field. */
  readonly default?: string;
  /**
   * The value of a flag without a value; only for flags that allow it. @default `true` for booleans
   */
  readonly implied?: string;
  /**
   * The effect of the flag together with `--config`: kube-proxy ignores most flags, lets a few
   * override the file, puts one before the value of the file (`merged`), and uses those that do not
   * concern the file.
   */
  readonly withConfig: "ignored" | "wins" | "merged" | "used";
  /** An empty value means that the flag is absent, as in a manifest whose template had no value. */
  readonly emptyIsAbsent?: true;
  /** The only verbs that accept the flag. @default every verb */
  readonly verbs?: readonly string[];
  /** Logged if the flag is used: why not to use it, and what to use instead. */
  readonly deprecated?: string;
  /**
   * The flag has no effect. `help` gives the reason or the alternative and is logged if the flag is
   * used. Not in `--help`.
   */
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

/** Returns the flag as typed: `-v`, `--config`. */
export function typedFlag({ name }: Flag): string {
  return name.length === 1 ? `-${name}` : `--${name}`;
}
