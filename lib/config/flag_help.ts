import { formatDuration } from "../api/duration.ts";
import { flagConfiguration, valueAt } from "./configuration.ts";
import { type Flag, FLAG_GROUPS } from "./flag.ts";
import { FLAG_ROWS } from "./flags.ts";
import { wrapText } from "./wrap_text.ts";

/** Widest line of help. */
export const HELP_WIDTH = 80;

const INDENT = 6;

/** Returns the flags by group, each with its help below it, so that long names need no column. */
export function flagHelp(flags: readonly Flag[] = FLAG_ROWS): string {
  const groups = FLAG_GROUPS.map((group) => ({
    group,
    members: flags.filter((flag) => flag.group === group && !flag.retired),
  })).filter(({ members }) => members.length > 0);
  return groups
    .map(({ group, members }) => `${group}:\n${members.map(flagParagraph).join("")}`)
    .join("\n");
}

function flagParagraph(flag: Flag): string {
  const value = flagDefault(flag);
  const note = value === "" || value === "false" ? "" : ` (default ${value})`;
  const deprecated = flag.deprecated === undefined ? "" : ` (deprecated: ${flag.deprecated})`;
  const text = wrapText(`${flag.help}${note}${deprecated}`, HELP_WIDTH, INDENT);
  return `  ${flagUsage(flag)}\n${text}\n`;
}

/** Returns e.g. `--proxy-mode MODE, --mode MODE`. */
export function flagUsage({ name, aliases = [], type, implied, choices, value }: Flag): string {
  const placeholder = choices
    ? [...choices.filter((choice) => choice !== ""), ...(value ? [value] : [])].join("|")
    : value ?? (type === "duration" ? "DURATION" : "VALUE");
  const shown = type === "boolean" || implied !== undefined ? "" : ` ${placeholder}`;
  return [name, ...aliases].map((each) => `${each.length === 1 ? "-" : "--"}${each}${shown}`)
    .join(", ");
}

/** Returns the default as typed; empty if there is none. */
export function flagDefault({ field, type, default: otherwise = "" }: Flag): string {
  if (field === undefined) return otherwise;
  // Addresses are completed once bindAddress is known; this is the result for its default.
  const served = { healthzBindAddress: "0.0.0.0:10256", metricsBindAddress: "127.0.0.1:10249" };
  if (field in served) return served[field as keyof typeof served];
  const value = valueAt(flagConfiguration(), field);
  if (type === "duration") return formatDuration(value as number);
  if (type === "gates") return "";
  return String(value);
}
