/** The part of `@std/cli/parse-args` that kube-relay uses, typed more strictly than the original. */
export interface ParseOptions {
  /** Names whose value is always a string. */
  string?: readonly string[];
  /** Names that take no value. */
  boolean?: readonly string[];
  /** Names that may occur more than once; their values are collected. */
  collect?: readonly string[];
  /** Short names and other spellings of a name. */
  alias?: Readonly<Record<string, string | readonly string[]>>;
  /** Called with each argument that no option claims; `false` leaves it out of the result. */
  unknown?: (argument: string, key?: string, value?: unknown) => unknown;
  /** Leaves everything from the first positional argument on in `_`. */
  stopEarly?: boolean;
  /** Collects what follows `--` under that key. */
  "--"?: boolean;
}

/** Parses command line arguments; positional ones are found under `_`. */
export declare function parseArgs(
  argv: readonly string[],
  options?: ParseOptions,
): Record<string, unknown> & { _: (string | number)[] };
