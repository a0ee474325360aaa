import { tryParseDuration } from "../api/duration.ts";
import { type Flag, typedFlag, type VerbosityPattern } from "./flag.ts";
import { didYouMean } from "../api/nearest_name.ts";

/** The value, or a sentence that names flag, text and valid values. */
type FlagValueResult = { readonly value: unknown } | { readonly problem: string };

/** Parses the text of one flag by the type of its row. */
export function parseFlagValue(flag: Flag, text: string): FlagValueResult {
  const { choices, pattern } = flag;
  if (choices && !choices.includes(text) && !pattern?.test(text)) {
    const words = choices.filter((choice) => choice !== "");
    const listed = words.length === 1 ? words[0] : `one of ${words.join(", ")}`;
    const further = flag.patternHelp === undefined ? "" : `, or ${flag.patternHelp}`;
    return wrong(flag, text, `${listed}${further}${didYouMean(text, words)}`);
  }
  switch (flag.type) {
    case "text":
      return { value: text };
    case "list":
      return { value: text.split(",").map((each) => each.trim()).filter((each) => each !== "") };
    case "boolean":
      return parseBoolean(flag, text);
    case "integer":
      return parseInteger(flag, text);
    case "number":
      return parseNumber(flag, text);
    case "duration":
      return parseDurationFlag(flag, text);
    case "gates":
      return parseGates(flag, text);
    case "vmodule":
      return parsePatterns(flag, text);
  }
}

/** The spellings that Go's strconv.ParseBool accepts. */
const BOOLEANS: ReadonlyMap<string, boolean> = new Map([
  ...["1", "t", "T", "true", "TRUE", "True"].map((text) => [text, true] as const),
  ...["0", "f", "F", "false", "FALSE", "False"].map((text) => [text, false] as const),
]);

function parseBoolean(flag: Flag, text: string): FlagValueResult {
  const value = BOOLEANS.get(text);
  return value === undefined ? wrong(flag, text, "true or false") : { value };
}

function parseInteger(flag: Flag, text: string): FlagValueResult {
  const { minimum = -Infinity, maximum = Infinity } = flag;
  const value = /^[+-]?\d+$/.test(text) ? Number(text) : NaN;
  if (value >= minimum && value <= maximum) return { value };
  return wrong(
    flag,
    text,
    `a whole number${minimum > -Infinity ? ` from ${minimum}` : ""}${
      maximum < Infinity ? ` to ${maximum}` : ""
    }`,
  );
}

function parseNumber(flag: Flag, text: string): FlagValueResult {
  const isNumber = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text);
  return isNumber ? { value: Number(text) } : wrong(flag, text, "a number such as 5 or 0.5");
}

function parseGates(flag: Flag, text: string): FlagValueResult {
  const gates: Record<string, boolean> = {};
  for (const pair of pairsOf(text)) {
    const [, name, word] = /^([^=]+)=(.*)$/.exec(pair) ?? [];
    const value = BOOLEANS.get(word?.trim() ?? "");
    if (name === undefined || value === undefined) {
      return wrong(flag, pair, "a pair such as ContextualLogging=true");
    }
    gates[name.trim()] = value;
  }
  return { value: gates };
}

function parsePatterns(flag: Flag, text: string): FlagValueResult {
  const patterns: VerbosityPattern[] = [];
  for (const pair of pairsOf(text)) {
    const [, filePattern, word] = /^([^=]+)=(\d+)$/.exec(pair) ?? [];
    if (filePattern === undefined || Number(word) > 2 ** 31 - 1) {
      return wrong(flag, pair, "a pair such as syncer=4");
    }
    patterns.push({ filePattern, verbosity: Number(word) });
  }
  return { value: patterns };
}

/** pflag and klog ignore empty pairs, such as one after a comma at the end. */
function pairsOf(text: string): readonly string[] {
  return text.split(",").map((pair) => pair.trim()).filter((pair) => pair !== "");
}

function parseDurationFlag(flag: Flag, text: string): FlagValueResult {
  const value = tryParseDuration(text);
  if (value === undefined) {
    return wrong(flag, text, "a duration with its unit, such as 30s, 1m30s or 250ms");
  }
  if (flag.minimum !== undefined && value < flag.minimum) {
    return wrong(flag, text, flag.minimum > 0 ? "a duration above 0" : "0s or more");
  }
  return { value };
}

function wrong(flag: Flag, text: string, expected: string): { readonly problem: string } {
  return { problem: `Cannot use '${text}' for ${typedFlag(flag)}: expected ${expected}` };
}
