/** Explanations as text. Pure: the same report gives the same text. */
import { socketOf } from "./explanation_steps.ts";
import type { ExplanationStep } from "../../proxy/packet_explanation.ts";
import type { ExplainedPacket, ExplainReport } from "./explain_report.ts";
import { printableText } from "../../log/printable_text.ts";
import {
  hangingText,
  stepLines,
  type TextLook,
  type TextStyle,
  textStyle,
} from "../cli/terminal_text.ts";

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
  const lines = steps.flatMap((step, index) => {
    const label = `${String(index + 1).padStart(2)}  ${TITLES[step.topic]}`;
    return stepLines(label.padEnd(INDENT), step, view);
  });
  return `${[colors.bold(arrow), ...answer, ...lines].join("\n")}\n`;
}
