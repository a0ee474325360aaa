/** Explanations of prefixes and addresses as text. Pure. */
import { printableText } from "../../log/printable_text.ts";
import type { AddressReport } from "../../routing/explain_address.ts";
import type { PrefixReport } from "../../routing/explain_prefix.ts";
import { hangingText, stepLines, type TextLook, textStyle } from "../cli/terminal_text.ts";

/** Width of the topic of a step. */
const INDENT = 14;
/** Headlines that begin so are good news. */
const GOOD = /^(?:ANNOUNCED|REACHABLE|FREE)/;

/** The answer, then its steps. */
export function renderRouting(
  { subject, report, notes }: {
    /** The prefix or the address. */
    readonly subject: string;
    readonly report: PrefixReport | AddressReport;
    /** What is not known, each a sentence without a full stop. */
    readonly notes: readonly string[];
  },
  look: TextLook = {},
): string {
  const view = textStyle(look);
  const { colors, width } = view;
  const paint = GOOD.test(report.headline) ? colors.green : colors.red;
  const answer = hangingText("  ", `${report.headline}.`, { width });
  return [
    colors.bold(printableText(subject)),
    paint(colors.bold(answer)),
    ...notes.map((text) =>
      colors.yellow(hangingText("  Note: ", `${text}.`, { ...view, indent: 8 }))
    ),
    ...report.steps.flatMap((step) => stepLines(`  ${step.topic}`.padEnd(INDENT), step, view)),
    "",
  ].join("\n");
}
