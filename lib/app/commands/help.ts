/**
 * `--help`.
 *
 * @module
 */
import { flagHelp, HELP_WIDTH } from "../../config/flag_help.ts";
import { wrapText } from "../../config/wrap_text.ts";
import type { Command, TellingCommand } from "./command.ts";
import { versionText } from "../version.ts";

const NAME = "help";
const SUMMARY = "print this help (as --help)";

/** The verb that tells of the other verbs and of the flags. */
export function createHelpCommand(verbs: readonly Command[]): TellingCommand {
  return {
    name: NAME,
    summary: SUMMARY,
    text: () => helpText([...verbs, { name: NAME, summary: SUMMARY }]),
  };
}

/** The whole help, in lines of at most 80 columns. */
export function helpText(verbs: readonly Pick<Command, "examples" | "name" | "summary">[]): string {
  const longest = Math.max(...verbs.map(({ name }) => name.length));
  const list = verbs.map(({ name, summary }) => {
    const indent = longest + 4;
    const text = wrapText(summary, { width: HELP_WIDTH, indent });
    return `  ${name.padEnd(longest)}  ${text.trimStart()}\n`;
  }).join("");
  const examples = verbs.flatMap(({ examples = [] }) => examples).map((line) => `  ${line}\n`);
  return `${versionText()}
A Kubernetes Service proxy for one node.

Usage:
  kube-relay [run] [flags]
  kube-relay VERB [flags]

Verbs:
${list}
Examples:
${examples.join("")}
${flagHelp()}
Flags are kube-proxy's where it has them; docs/flags.md tells more.
Exit codes: 0 done, 1 failed, 2 wrong command line or configuration.
`;
}
