/**
 * Parses a command line by the table of flags, with the grammar of kube-proxy (Go's pflag).
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { type Flag, typedFlag } from "./flag.ts";
import { findFlag, FLAG_ROWS, type FlagName, type FlagValues } from "./flags.ts";
import { didYouMean } from "../api/nearest_name.ts";
import { parseFlagValue } from "./parse_flag_value.ts";

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
    const value = attached ?? (flag && (impliedValue(flag) ?? argv[++index]));
    if (!flag) problems.push(unknownFlag(argument, name));
    else if (value === undefined) {
      problems.push(`Flag ${typedFlag(flag)} needs a value${example(flag)}`);
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

function impliedValue(flag: Flag): string | undefined {
  return flag.implied ?? (flag.type === "boolean" ? "true" : undefined);
}

function unknownFlag(argument: string, name: string): string {
  const shown = argument.startsWith("--") ? `--${name}` : argument;
  const known = FLAG_ROWS.filter(({ retired }) => !retired).flatMap((
    flag,
  ) => [flag.name, ...(flag.aliases ?? [])]);
  const bare = name.replace(/^-+/, "").replaceAll("_", "-");
  return `Unknown flag ${shown}${didYouMean(bare, known.filter((each) => each.length > 1), "--")}`;
}

function example(flag: Flag): string {
  if (flag.choices) return `: one of ${flag.choices.join(", ")}`;
  return flag.type === "duration" ? ", such as 30s" : "";
}
