/** The texts about the program, from the tables of verbs and flags: help, manual page and version. */
import { type Flag, FLAG_GROUPS } from "../../config/flag.ts";
import { flagDefault, flagHelp, flagUsage, HELP_WIDTH } from "../../config/flag_help.ts";
import { FLAG_ROWS } from "../../config/flags.ts";
import { VERSION, versionText } from "../../config/version.ts";
import { wrapText } from "../../config/wrap_text.ts";
import { ENVIRONMENT } from "../../os/permissions.ts";
import type { Verb } from "./commands/command.ts";

/** The exit codes of all verbs. */
const EXIT_CODES: readonly (readonly [code: number, meaning: string])[] = [
  [0, "success"],
  [1, "failure"],
  [2, "wrong command line or configuration"],
  [3, "'diff' or 'trace' found a difference, 'check' found warnings"],
  [130, "ended by SIGINT"],
  [143, "ended by SIGTERM"],
];
const EXIT_TEXT = `${
  wrapText(`Exit codes: ${EXIT_CODES.map((each) => each.join(" ")).join(", ")}.`, HELP_WIDTH)
}\n`;

/** The help of a verb, or the whole help, at most 80 columns wide. */
export function helpText(verbs: readonly Verb[], name: string | undefined): string {
  const shown = verbs.filter(({ hidden }) => !hidden);
  const verb = shown.find((each) => each.name === name);
  if (verb) return verbHelp(verb);
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

function verbHelp(verb: Verb): string {
  const { name, summary, operands = [], examples = [] } = verb;
  const own = flagsOf(verb);
  const usage = `  kube-relay ${verbUsage(verb)}${own.length === 0 ? "" : " [flags]"}\n`;
  return [
    `Usage:\n${usage}\n${indented([wrapText(summary, HELP_WIDTH, 2).trim()])}`,
    ...(operands.length === 0 ? [] : [
      namedList(operands.map((operand) => [operand.name, operand.help])),
    ]),
    ...(examples.length === 0 ? [] : [`Examples:\n${indented(examples)}`]),
    ...(own.length === 0 ? [] : [flagHelp(own)]),
    name === "run" ? EXIT_TEXT : "Flags of the configuration: kube-relay run --help\n",
  ].join("\n");
}

/** Returns e.g. `explain FROM TO`, optional operands in brackets. */
function verbUsage({ name, operands = [] }: Verb): string {
  const words = operands.map(({ name, many, optional }) => {
    const word = many ? `${name}...` : name;
    return optional ? `[${word}]` : word;
  });
  return [name, ...words].join(" ");
}

/** The flags of a verb and of its examples; for `run` all flags without a verb. */
function flagsOf({ name: verb, examples = [] }: Verb): readonly Flag[] {
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
  "check",
  "explain",
  "diff",
  "trace",
  "dump",
]);

function namedList(items: readonly (readonly [name: string, text: string])[]): string {
  const longest = Math.max(...items.map(([name]) => name.length));
  return items.map(([name, text]) => {
    const lines = wrapText(text, HELP_WIDTH, longest + 4);
    return `  ${name.padEnd(longest)}  ${lines.trimStart()}\n`;
  }).join("");
}

function indented(lines: readonly string[]): string {
  return lines.map((line) => `  ${line}\n`).join("");
}

/** The page of section 8, in roff with the man macros, from the same tables as `--help`. */
export function manPage(verbs: readonly Verb[]): string {
  const shown = verbs.filter(({ hidden }) => !hidden);
  return `${
    [
      `.TH KUBE-RELAY 8 "" "kube-relay ${VERSION}" "System Administration"`,
      section("NAME"),
      "kube-relay \\- a Kubernetes Service proxy for one node",
      section("SYNOPSIS"),
      "\\fBkube-relay\\fR [\\fBrun\\fR] [\\fIflags\\fR]",
      ".br",
      "\\fBkube-relay\\fR \\fIverb\\fR [\\fIoperands\\fR] [\\fIflags\\fR]",
      section("DESCRIPTION"),
      text(
        "Makes the Services of a Kubernetes cluster, or of a folder of manifests, reachable on this " +
          "node. Accepts the flags and the configuration file of kube-proxy. Without a verb it serves " +
          "until a signal ends it.",
      ),
      section("VERBS"),
      ...shown.flatMap(verbLines),
      section("OPTIONS"),
      ...FLAG_GROUPS.flatMap((group) => {
        const rows: readonly Flag[] = FLAG_ROWS;
        const members = rows.filter((flag) => flag.group === group && !flag.retired);
        return members.length === 0 ? [] : [`.SS "${text(group)}"`, ...members.flatMap(flagLines)];
      }),
      section("ENVIRONMENT"),
      ...ENVIRONMENT.flatMap(({ name, purpose }) => [
        ".TP",
        `\\fB${text(name)}\\fR`,
        text(`read to ${purpose}`),
      ]),
      section("EXIT STATUS"),
      ...EXIT_CODES.flatMap(([code, meaning]) => [".TP", `${code}`, text(meaning)]),
    ].join("\n")
  }\n`;
}

function verbLines(verb: Verb): readonly string[] {
  const { summary, operands = [], examples = [] } = verb;
  return [
    ".TP",
    `\\fB${text(verbUsage(verb))}\\fR`,
    text(summary),
    ...operands.flatMap(({ name, help }) => [".br", `\\fI${text(name)}\\fR: ${text(help)}`]),
    ...(examples.length === 0
      ? []
      : [".sp", ".nf", ".in 2n", ...examples.map((example) => text(example)), ".in", ".fi"]),
  ];
}

function flagLines(flag: Flag): readonly string[] {
  const standard = flagDefault(flag);
  const notes = [
    ...(standard === "" || standard === "false" ? [] : [`default ${standard}`]),
    ...(flag.verbs ? [`for ${flag.verbs.join(", ")}`] : []),
    ...(flag.deprecated === undefined ? [] : [`deprecated: ${flag.deprecated}`]),
  ];
  const note = notes.length === 0 ? "" : ` (${notes.join("; ")})`;
  return [".TP", `\\fB${text(flagUsage(flag))}\\fR`, text(`${flag.help}${note}`)];
}

function section(name: string): string {
  return `.SH "${name}"`;
}

/** Escapes a text for troff; a typed dash stays one. */
function text(plain: string): string {
  return plain.replaceAll("\\", "\\e").replaceAll("-", "\\-").replace(/^([.'])/, "\\&$1");
}
