import type { Flag } from "../../../config/flag.ts";
import { flagHelp, HELP_WIDTH } from "../../../config/flag_help.ts";
import { FLAG_ROWS } from "../../../config/flags.ts";
import { wrapText } from "../../../config/wrap_text.ts";
import type { Command, Operand, TextCommand } from "./command.ts";
import { versionText } from "../version.ts";

const NAME = "help";
const SUMMARY = "print this help (like --help), or the help of a verb";
const OPERANDS: readonly Operand[] = [
  { name: "VERB", help: "the verb to describe", optional: true },
];

/** The exit codes of all verbs. */
export const EXIT_CODES: readonly (readonly [code: number, meaning: string])[] = [
  [0, "success"],
  [1, "failure"],
  [2, "wrong command line or configuration"],
  [3, "'diff' or 'trace' found a difference"],
  [130, "ended by SIGINT"],
  [143, "ended by SIGTERM"],
];
const EXIT_TEXT = `${
  wrapText(`Exit codes: ${EXIT_CODES.map((each) => each.join(" ")).join(", ")}.`, {
    width: HELP_WIDTH,
  })
}\n`;

/** The parts of a verb that help shows. */
export type DescribedVerb = Pick<
  Command,
  "name" | "summary" | "operands" | "examples" | "hidden"
>;

/** Creates the verb that prints the help. */
export function createHelpCommand(verbs: readonly Command[]): TextCommand {
  const all: readonly DescribedVerb[] = [...verbs, {
    name: NAME,
    summary: SUMMARY,
    operands: OPERANDS,
  }];
  return {
    name: NAME,
    summary: SUMMARY,
    operands: OPERANDS,
    text(_, [name]) {
      const verb = all.find((each) => each.name === name && !each.hidden);
      return verb === undefined ? helpText(all) : verbHelp(verb);
    },
  };
}

/** The whole help, at most 80 columns wide. */
function helpText(verbs: readonly DescribedVerb[]): string {
  const shown = verbs.filter(({ hidden }) => !hidden);
  // The other examples are in the help of the verb.
  const examples = shown.flatMap(({ examples = [] }) => examples.slice(0, 1));
  return `${versionText()}
A Kubernetes Service proxy for one node.

Usage:
  kube-relay [run] [flags]
  kube-relay VERB [flags]
  kube-relay VERB --help

Verbs:
${namedList(shown.map(({ name, summary }) => [name, summary]))}
Examples:
${indented(examples)}
${flagHelp()}
Flags are kube-proxy's where it has them; docs/flags.md has the details.
${EXIT_TEXT}`;
}

/** The help of one verb, at most 80 columns wide. */
function verbHelp(verb: DescribedVerb): string {
  const { name, summary, operands = [], examples = [] } = verb;
  const own = flagsOf(verb);
  const usage = `  kube-relay ${verbUsage(verb)}${own.length === 0 ? "" : " [flags]"}\n`;
  return [
    `Usage:\n${usage}\n${indented([wrapText(summary, { width: HELP_WIDTH, indent: 2 }).trim()])}`,
    ...(operands.length === 0 ? [] : [
      namedList(operands.map((operand) => [operand.name, operand.help])),
    ]),
    ...(examples.length === 0 ? [] : [`Examples:\n${indented(examples)}`]),
    ...(own.length === 0 ? [] : [flagHelp(own)]),
    name === "run" ? EXIT_TEXT : "Flags of the configuration: kube-relay run --help\n",
  ].join("\n");
}

/** Returns e.g. `explain FROM TO`, optional operands in brackets. */
export function verbUsage({ name, operands = [] }: DescribedVerb): string {
  const words = operands.map((operand) => operand.optional ? `[${operand.name}]` : operand.name);
  return [name, ...words].join(" ");
}

/** The flags of a verb and of its examples; for `run` all flags without a verb. */
function flagsOf({ name: verb, examples = [] }: DescribedVerb): readonly Flag[] {
  const shown = new Set(examples.flatMap((line) => line.match(/(?<= --)[a-z-]+/g) ?? []));
  const rows: readonly Flag[] = FLAG_ROWS;
  return rows.filter(({ verbs, name, aliases = [], retired }) =>
    !retired && (verbs?.includes(verb) ||
      [name, ...aliases].some((each) => shown.has(each)) ||
      (verbs === undefined && verb === "run") ||
      (name === "control-socket" && ASKS.has(verb)))
  );
}

/** Verbs that ask a running kube-relay over its control socket. */
const ASKS: ReadonlySet<string> = new Set([
  "status",
  "doctor",
  "explain",
  "diff",
  "trace",
  "dump",
]);

function namedList(items: readonly (readonly [name: string, text: string])[]): string {
  const longest = Math.max(...items.map(([name]) => name.length));
  return items.map(([name, text]) => {
    const lines = wrapText(text, { width: HELP_WIDTH, indent: longest + 4 });
    return `  ${name.padEnd(longest)}  ${lines.trimStart()}\n`;
  }).join("");
}

function indented(lines: readonly string[]): string {
  return lines.map((line) => `  ${line}\n`).join("");
}
