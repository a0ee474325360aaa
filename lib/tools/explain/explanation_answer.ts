/** Explanations as reports. Pure. */
import type { ExplanationStep } from "../../proxy/packet_explanation.ts";
import type { Report, Row, Tone } from "../report.ts";
import type { ExplainedPacket, ExplainReport } from "./explain_report.ts";
import type { ExplainedRouting } from "./explain_routing.ts";
import { socketOf } from "./explanation_steps.ts";

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
export function explanationAnswer(
  { mode, nodeName, assumptions, packets }: ExplainReport,
): Report {
  return {
    title: "",
    rows: [
      { cells: [`On node ${nodeName}, mode ${mode}`] },
      ...assumptions.map((text) => sentence(`Note: ${text}`, "warning")),
    ],
    parts: packets.map(packetPart),
  };
}

function packetPart(
  { packet, headline, verdict, policies, kernel, steps }: ExplainedPacket,
): Report {
  const tone = verdict.kind === "forward" ? "good" : "bad";
  const isAllowed = policies?.receivers.every((each) => each.isAllowed) ?? true;
  const isAltered = kernel.kind === "asked" && kernel.differences.length > 0;
  return {
    title: `${packet.from.address} -> ${socketOf(packet)}`,
    rows: [
      // A denial comes first: it is the reason why the connection fails.
      ...(policies?.answer === undefined
        ? []
        : [sentence(policies.answer, isAllowed ? "good" : "bad")]),
      isAllowed
        ? sentence(headline, tone)
        : sentence(`Without NetworkPolicies: ${headline}`, "detail"),
      ...(isAltered
        ? [sentence("BUT the kernel holds something else: see the last step", "bad")]
        : []),
      ...steps.map(({ topic, text, items = [] }, index) => ({
        cells: [String(index + 1), TITLES[topic], text],
        detail: items,
      })),
    ],
    parts: [],
  };
}

/** Headlines that begin so are good news. */
const GOOD = /^(?:ANNOUNCED|REACHABLE|FREE)/;

/** The answer about a prefix or an address, what is not known, and the steps. */
export function routingAnswer({ subject, report, notes }: ExplainedRouting): Report {
  const { headline, steps } = report;
  const part: Report = {
    title: subject,
    rows: [
      sentence(headline, GOOD.test(headline) ? "good" : "bad"),
      ...notes.map((text) => sentence(`Note: ${text}`, "warning")),
      ...steps.map(({ topic, text, items = [] }) => ({ cells: [topic, text], detail: items })),
    ],
    parts: [],
  };
  return { title: "", rows: [], parts: [part] };
}

function sentence(text: string, tone: Tone): Row {
  return { cells: [`${text}.`], tone };
}
