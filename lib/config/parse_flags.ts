/**
 * Reads a command line by the table of flags, with the grammar of kube-proxy (Go's pflag).
 *
 * @module
 */
import { parseArgs } from "@std/cli/parse-args";
import { type Flag, typedFlag } from "./flag.ts";
import { findFlag, FLAG_ROWS, type FlagName, type FlagValues } from "./flags.ts";
import { didYouMean } from "./nearest_name.ts";
import { parseFlagValue } from "./parse_flag_value.ts";

/** What a command line says. */
export interface ParsedFlags {
  /** Values of the flags that were given; the last one counts, but for lists and maps, which add up. */
  readonly values: FlagValues;
  /** Everything that is no flag. Empty texts are left out, as by kube-proxy. */
  readonly positionals: readonly string[];
  /** All that is wrong, each one a sentence that names flag, value and what would be right. */
  readonly problems: readonly string[];
}

/** Reads a command line. Never throws; whatever is right is read also when something else is wrong. */
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

/** What a flag comes to that is given once more: the last one counts, but lists and maps add up. */
function addValue({ type }: Flag, before: unknown, value: unknown): unknown {
  if (before === undefined) return value;
  if (type === "gates") return { ...before, ...Object(value) };
  return Array.isArray(before) ? [...before, ...value as unknown[]] : value;
}

/** Names of the flags that were given, as in the table. */
export function givenFlags(values: FlagValues): readonly FlagName[] {
  return FLAG_ROWS.map(({ name }) => name).filter((name) => values[name] !== undefined);
}

/**
 * Rewrites flags to `--name=value`, which parse-args and pflag read alike. They differ otherwise:
 * pflag takes the next argument as value whatever it begins with, never as the value of a boolean
 * flag; and parse-args has its own meaning for `--no-x` and `--a.b`.
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
  // Behind `--`, since parse-args makes numbers of positional arguments elsewhere.
  return { tokens: [...tokens, "--", ...positionals], problems };
}

function splitFlag(argument: string): { name: string; attached?: string } {
  if (!argument.startsWith("--")) {
    const attached = argument.slice(2).replace(/^=/, "");
    // `-v4` and `-v=4` are short flags; `-kubeconfig` is a mistake that the whole name explains.
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
