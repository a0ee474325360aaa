/**
 * Explanations as text for people. Pure: the same report gives the same text.
 *
 * @module
 */
import { createColors } from "picocolors";
import { wrapText } from "../../config/wrap_text.ts";
import { socketOf } from "../../proxy/explanation_headline.ts";
import type { ExplanationStep } from "../../proxy/packet_explanation.ts";
import type { ExplainedPacket, ExplainReport } from "./explain_report.ts";
import { printableText } from "../../log/printable_text.ts";

/** How the text looks. */
interface ExplanationViewOptions {
  /** Width of the terminal. @default {80} */
  readonly columns?: number;
  /** @default {false} */
  readonly color?: boolean;
}

interface View {
  readonly columns: number;
  readonly colors: ReturnType<typeof createColors>;
}

/** Narrowest text that can still be read. */
const MIN_COLUMNS = 60;
/** Of a step: a Service of 1,000 endpoints has a map element for each. */
const MOST_ITEMS = 40;
/** Width of the number and name of a step. */
const INDENT = 15;

const TITLES: Readonly<Record<ExplanationStep["topic"], string>> = {
  from: "From",
  to: "To",
  nearest: "Nearest",
  sources: "Admitted",
  policy: "Policy",
  endpoints: "Endpoints",
  source: "Source",
  affinity: "Affinity",
  carriers: "Carried by",
  kernel: "Kernel",
};

/** Each packet with its steps; what several need to know stands at the top. */
export function renderExplanation(
  report: ExplainReport,
  { columns = 80, color = false }: ExplanationViewOptions = {},
): string {
  const view: View = { columns: Math.max(MIN_COLUMNS, columns), colors: createColors(color) };
  const { mode, nodeName, assumptions, packets } = report;
  const heading = `On node ${printableText(nodeName)}, mode ${mode}`;
  const notes = assumptions.map((text) =>
    view.colors.yellow(paragraph(`Note: ${printableText(text)}.`, { width: view.columns, hang: 6 }))
  );
  const sections = packets.map((packet) => packetSection(packet, view));
  return [`${[heading, ...notes].join("\n")}\n`, ...sections].join("\n");
}

function packetSection(packet: ExplainedPacket, view: View): string {
  const { packet: { from }, headline, verdict, steps } = packet;
  const { columns, colors } = view;
  const arrow = `${from.address} -> ${socketOf(packet.packet)}`;
  const paint = verdict.kind === "forward" ? colors.green : colors.red;
  const text = paragraph(`${printableText(headline)}.`, { width: columns - 2, hang: 0 });
  const answer = text.split("\n").map((line) => `  ${paint(colors.bold(line))}`);
  if (packet.kernel.kind === "asked" && packet.kernel.differences.length > 0) {
    answer.push(
      `  ${colors.red(colors.bold("BUT the kernel holds something else: see the last step."))}`,
    );
  }
  const told = steps.flatMap((step, index) => stepLines(step, { number: index + 1, view }));
  return `${[colors.bold(arrow), ...answer, ...told].join("\n")}\n`;
}

function stepLines(
  { topic, text, items = [] }: ExplanationStep,
  { number, view: { columns, colors } }: { readonly number: number; readonly view: View },
): readonly string[] {
  const label = `${String(number).padStart(2)}  ${TITLES[topic]}`.padEnd(INDENT);
  const [first = "", ...rest] = wrapText(printableText(text), { width: columns, indent: INDENT })
    .split("\n");
  const more = items.length - MOST_ITEMS;
  const shown = more > 1
    ? [...items.slice(0, MOST_ITEMS), `and ${more} more; --json has all`]
    : items;
  const lines = shown.flatMap((item) =>
    paragraph(printableText(item), { width: columns, indent: INDENT + 2, hang: 2 })
      .split("\n")
  );
  return [colors.dim(label) + first.slice(INDENT), ...rest, ...lines];
}

/** Text whose further lines are set in. */
function paragraph(
  text: string,
  { width, indent = 0, hang }: {
    readonly width: number;
    readonly indent?: number;
    readonly hang: number;
  },
): string {
  const lines = wrapText(text, { width, indent: indent + hang }).split("\n");
  // The first line begins further left: it keeps its breaks, which are never too late.
  return [" ".repeat(indent) + (lines[0] ?? "").trimStart(), ...lines.slice(1)].join("\n");
}
