/** How an explanation is shown. Pure. It loads none of what makes one, for the command that only asks. */
import { socketOf } from "../../proxy/packet.ts";
import type { ExplanationStep } from "../../proxy/packet_explanation.ts";
import { type Report, type Row, sentence } from "../report.ts";
import type { ExplainedPacket, ExplainReport } from "./explain_report.ts";

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

/** Shows each packet with its steps, below the assumptions about all of them. */
export function explanationReport(
  { mode, nodeName, assumptions, packets }: ExplainReport,
): Report {
  return {
    title: "",
    rows: [
      { cells: [`On node ${nodeName}, mode ${mode}`] },
      ...assumptions.map((text) => sentence(`Note: ${text}`, "warning")),
    ],
    parts: packets.map((explained) => ({
      title: `${explained.packet.from.address} -> ${socketOf(explained.packet)}`,
      rows: packetRows(explained),
      parts: [],
    })),
  };
}

function packetRows(
  { headline, verdict, policies, kernel, steps }: ExplainedPacket,
): readonly Row[] {
  const isAllowed = policies?.receivers.every((each) => each.isAllowed) ?? true;
  const isAltered = kernel.kind === "asked" && kernel.differences.length > 0;
  return [
    // A denial comes first: it is the reason why the connection fails.
    ...(policies?.answer === undefined
      ? []
      : [sentence(policies.answer, isAllowed ? "good" : "bad")]),
    isAllowed
      ? sentence(headline, verdict.kind === "forward" ? "good" : "bad")
      : sentence(`Without NetworkPolicies: ${headline}`, "detail"),
    ...(isAltered
      ? [sentence("BUT the kernel holds something else: see the last step", "bad")]
      : []),
    ...steps.map(({ topic, text, items = [] }, index) => ({
      cells: [String(index + 1), TITLES[topic], text],
      detail: items,
    })),
  ];
}
