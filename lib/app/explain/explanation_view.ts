/** Explanations as text. Pure: the same report gives the same text. */
import { socketOf } from "../../explain/explanation_headline.ts";
import type { ExplanationStep } from "../../proxy/packet_explanation.ts";
import type { ExplainedPacket, ExplainReport } from "./explain_report.ts";
import { printableText } from "../../log/printable_text.ts";
import { hangingText, type TextLook, type TextStyle, textStyle } from "../cli/terminal_text.ts";

/** Most items of a step: a Service with 1,000 endpoints has a map element for each. */
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
  settings: "Settings",
  egress: "Egress",
  ingress: "Ingress",
  carriers: "Carried by",
  kernel: "Kernel",
};

/** Each packet with its steps, below the assumptions about all of them. */
export function renderExplanation(report: ExplainReport, look: TextLook = {}): string {
  const view = textStyle(look);
  const { mode, nodeName, assumptions, packets } = report;
  const heading = `On node ${printableText(nodeName)}, mode ${mode}`;
  const notes = assumptions.map((text) =>
    view.colors.yellow(hangingText("", `Note: ${text}.`, { ...view, indent: 6 }))
  );
  const sections = packets.map((packet) => packetSection(packet, view));
  return [`${[heading, ...notes].join("\n")}\n`, ...sections].join("\n");
}

function packetSection(packet: ExplainedPacket, view: TextStyle): string {
  const { packet: { from }, headline, verdict, policies, steps } = packet;
  const { width, colors } = view;
  const arrow = `${from.address} -> ${socketOf(packet.packet)}`;
  const paint = verdict.kind === "forward" ? colors.green : colors.red;
  const sentence = (text: string, paint: (text: string) => string) =>
    hangingText("", `${text}.`, { width: width - 2 }).split("\n")
      .map((line) => `  ${paint(colors.bold(line))}`);
  const isAllowed = policies?.receivers.every((each) => each.isAllowed) ?? true;
  // A denial comes first: it is the reason why the connection fails.
  const answer = [
    ...(policies?.answer === undefined
      ? []
      : sentence(policies.answer, isAllowed ? colors.green : colors.red)),
    ...(isAllowed
      ? sentence(headline, paint)
      : sentence(`Without NetworkPolicies: ${headline}`, colors.dim)),
  ];
  if (packet.kernel.kind === "asked" && packet.kernel.differences.length > 0) {
    answer.push(
      `  ${colors.red(colors.bold("BUT the kernel holds something else: see the last step."))}`,
    );
  }
  const lines = steps.flatMap((step, index) => stepLines(step, { number: index + 1, view }));
  return `${[colors.bold(arrow), ...answer, ...lines].join("\n")}\n`;
}

function stepLines(
  { topic, text, items = [] }: ExplanationStep,
  { number, view: { width, colors } }: { readonly number: number; readonly view: TextStyle },
): readonly string[] {
  const label = `${String(number).padStart(2)}  ${TITLES[topic]}`.padEnd(INDENT);
  const more = items.length - MOST_ITEMS;
  const shown = more > 1
    ? [...items.slice(0, MOST_ITEMS), `and ${more} more; --json has all`]
    : items;
  const bullet = " ".repeat(INDENT + 2);
  return [
    colors.dim(label) + hangingText(label, text, { width }).slice(INDENT),
    ...shown.map((item) => hangingText(bullet, item, { width, indent: INDENT + 4 })),
  ];
}
