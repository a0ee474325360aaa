/**
 * Parses a command line by the table of flags, with the grammar of kube-proxy (Go's pflag).
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { tryParseDuration } from "../api/duration.ts";
import { didYouMean } from "../api/nearest_name.ts";
import { type Flag, typedFlag, type VerbosityPattern } from "./flag.ts";
import { findFlag, FLAG_ROWS, type FlagName, type FlagValues } from "./flags.ts";

/** A parsed command line. */
export interface ParsedFlags {
  /** Values of the given flags; the last one wins, except that lists and maps add up. */
  readonly values: FlagValues;
  /** All other arguments. Empty ones are left out, as by kube-proxy. */
  readonly positionals: readonly string[];
  /** All problems, each a sentence that names flag, value and valid values. */
  readonly problems: readonly string[];
}

/** Parses a command line. Never throws; valid parts are parsed even if others are invalid. */
export function parseFlags(argv: readonly string[]): ParsedFlags {
  const { tokens, problems } = toPlainTokens(argv);
  const names = FLAG_ROWS.map(({ name }) => name);
  const { _: positionals, ...given } = parseArgs(tokens, {
    string: names,
    collect: names,
    "--": true,
  });
  const values: Record<string, unknown> = {};
  for (const flag of FLAG_ROWS as readonly Flag[]) {
    for (const text of (given[flag.name] ?? []) as string[]) {
      if (flag.emptyIsAbsent && text === "") {
        delete values[flag.name];
        continue;
      }
      const result = parseFlagValue(flag, text);
      if ("problem" in result) problems.push(result.problem);
      else values[flag.name] = addValue(flag, values[flag.name], result.value);
    }
  }
  return {
    values: values as FlagValues,
    positionals: [...positionals.map(String), ...(given["--"] as string[] ?? [])]
      .filter((text) => text !== ""),
    problems,
  };
}

/** Returns the value of a repeated flag: the last one wins, but lists and maps add up. */
function addValue({ type }: Flag, before: unknown, value: unknown): unknown {
  if (before === undefined) return value;
  if (type === "gates") return { ...before, ...Object(value) };
  return Array.isArray(before) ? [...before, ...value as unknown[]] : value;
}

/** Returns the names of the given flags, as in the table. */
export function givenFlags(values: FlagValues): readonly FlagName[] {
  return FLAG_ROWS.map(({ name }) => name).filter((name) => values[name] !== undefined);
}

/**
 * Rewrites flags to `--name=value`, which parse-args and pflag read alike. They differ otherwise:
 * pflag takes the next argument as a value whatever it begins with, but never as the value of a
 * boolean flag; and parse-args has its own meaning for `--no-x` and `--a.b`.
 */
function toPlainTokens(argv: readonly string[]): { tokens: string[]; problems: string[] } {
  const tokens: string[] = [];
  const positionals: string[] = [];
  const problems: string[] = [];
  for (let index = 0; index < argv.length; index++) {
    const argument = argv[index]!;
    if (argument === "--") {
      positionals.push(...argv.slice(index + 1));
      break;
    }
    if (!argument.startsWith("-") || argument === "-") {
      positionals.push(argument);
      continue;
    }
    const { name, attached } = splitFlag(argument);
    const flag = findFlag(name);
    const implied = flag?.implied ?? (flag?.type === "boolean" ? "true" : undefined);
    const value = attached ?? (flag && (implied ?? argv[++index]));
    if (!flag) problems.push(unknownFlag(argument, name));
    else if (value === undefined) {
      const example = flag.choices
        ? `: one of ${flag.choices.join(", ")}`
        : flag.type === "duration"
        ? ", such as 30s"
        : "";
      problems.push(`Flag ${typedFlag(flag)} needs a value${example}`);
    } else tokens.push(`--${flag.name}=${value}`);
  }
  // Behind `--`, because parse-args converts other positional arguments to numbers.
  return { tokens: [...tokens, "--", ...positionals], problems };
}

function splitFlag(argument: string): { name: string; attached?: string } {
  if (!argument.startsWith("--")) {
    const attached = argument.slice(2).replace(/^=/, "");
    // `-v4` and `-v=4` are short flags; `-kubeconfig` is a mistake, and the error shows its whole
    // name.
    if (argument.length === 2) return { name: argument.slice(1) };
    return /^-[a-z](=|\d)/.test(argument)
      ? { name: argument.slice(1, 2), attached }
      : { name: argument };
  }
  const equals = argument.indexOf("=");
  if (equals < 0) return { name: argument.slice(2) };
  return { name: argument.slice(2, equals), attached: argument.slice(equals + 1) };
}

function unknownFlag(argument: string, name: string): string {
  const shown = argument.startsWith("--") ? `--${name}` : argument;
  const known = FLAG_ROWS.filter(({ retired }) => !retired).flatMap((
    flag,
  ) => [flag.name, ...(flag.aliases ?? [])]);
  const bare = name.replace(/^-+/, "").replaceAll("_", "-");
  return `Unknown flag ${shown}${didYouMean(bare, known.filter((each) => each.length > 1), "--")}`;
}

/** The spellings that Go's strconv.ParseBool accepts. */
const BOOLEANS: ReadonlyMap<string, boolean> = new Map([
  ...["1", "t", "T", "true", "TRUE", "True"].map((text) => [text, true] as const),
  ...["0", "f", "F", "false", "FALSE", "False"].map((text) => [text, false] as const),
]);

/** Parses the text of one flag. A problem is a sentence that names flag, text and valid values. */
export function parseFlagValue(
  flag: Flag,
  text: string,
): { readonly value: unknown } | { readonly problem: string } {
  const { type, choices, pattern, patternHelp, minimum, maximum } = flag;
  const wrong = (expected: string, found = text) => ({
    problem: `Cannot use '${found}' for ${typedFlag(flag)}: expected ${expected}`,
  });
  if (choices && !choices.includes(text) && !pattern?.test(text)) {
    const words = choices.filter((choice) => choice !== "");
    const listed = words.length === 1 ? words[0] : `one of ${words.join(", ")}`;
    const further = patternHelp === undefined ? "" : `, or ${patternHelp}`;
    return wrong(`${listed}${further}${didYouMean(text, words)}`);
  }
  // pflag and klog ignore empty items too, such as one after a comma at the end.
  const items = text.split(",").map((each) => each.trim()).filter((each) => each !== "");
  switch (type) {
    case "text":
      return { value: text };
    case "list":
      return { value: items };
    case "boolean": {
      const value = BOOLEANS.get(text);
      return value === undefined ? wrong("true or false") : { value };
    }
    case "integer": {
      const value = /^[+-]?\d+$/.test(text) ? Number(text) : NaN;
      if (value >= (minimum ?? -Infinity) && value <= (maximum ?? Infinity)) return { value };
      const from = minimum === undefined ? "" : ` from ${minimum}`;
      return wrong(`a whole number${from}${maximum === undefined ? "" : ` to ${maximum}`}`);
    }
    case "number": {
      const isNumber = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);
      return isNumber ? { value: Number(text) } : wrong("a number such as 5 or 0.5");
    }
    case "duration": {
      const value = tryParseDuration(text);
      if (value === undefined) {
        return wrong("a duration with its unit, such as 30s, 1m30s or 250ms");
      }
      if (minimum === undefined || value >= minimum) return { value };
      return wrong(minimum > 0 ? "a duration above 0" : "0s or more");
    }
    case "gates": {
      const gates: Record<string, boolean> = {};
      for (const pair of items) {
        const [, name, word] = /^([^=]+)=(.*)$/.exec(pair) ?? [];
        const value = BOOLEANS.get(word?.trim() ?? "");
        if (name === undefined || value === undefined) {
          return wrong("a pair such as ContextualLogging=true", pair);
        }
        gates[name.trim()] = value;
      }
      return { value: gates };
    }
    case "vmodule": {
      const patterns: VerbosityPattern[] = [];
      for (const pair of items) {
        const [, filePattern, word] = /^([^=]+)=(\d+)$/.exec(pair) ?? [];
        if (filePattern === undefined || Number(word) > 2 ** 31 - 1) {
          return wrong("a pair such as syncer=4", pair);
        }
        patterns.push({ filePattern, verbosity: Number(word) });
      }
      return { value: patterns };
    }
  }
}
