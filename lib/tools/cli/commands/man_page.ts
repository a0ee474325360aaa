import { type Flag, FLAG_GROUPS } from "../../../config/flag.ts";
import { flagDefault, flagUsage } from "../../../config/flag_help.ts";
import { FLAG_ROWS } from "../../../config/flags.ts";
import { ENVIRONMENT } from "../../../os/permissions.ts";
import { type DescribedVerb, EXIT_CODES, verbUsage } from "./help.ts";
import type { Command, TextCommand } from "./command.ts";
import { VERSION } from "../../../config/version.ts";

/** Creates the verb that prints the page. `verbs`: all of them, itself included. */
export function createManCommand(verbs: () => readonly Command[]): TextCommand {
  return {
    name: "man",
    summary: "print the manual page, for man -l - or a file of section 8",
    examples: [
      "kube-relay man | man -l -",
      "kube-relay man >/usr/local/share/man/man8/kube-relay.8",
    ],
    text: () => manPage(verbs()),
  };
}

/** The page of section 8, in roff with the man macros, from the same tables as `--help`. */
function manPage(verbs: readonly DescribedVerb[]): string {
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
      ...FLAG_GROUPS.flatMap(groupLines),
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

function verbLines(verb: DescribedVerb): readonly string[] {
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

function groupLines(group: typeof FLAG_GROUPS[number]): readonly string[] {
  const rows: readonly Flag[] = FLAG_ROWS;
  const members = rows.filter((flag) => flag.group === group && !flag.retired);
  if (members.length === 0) return [];
  return [`.SS "${text(group)}"`, ...members.flatMap(flagLines)];
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
