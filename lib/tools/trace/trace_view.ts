/** The report of `trace` as text. Pure. */
import { wrapText } from "../../config/wrap_text.ts";
import { formatHostPort } from "../../net/port.ts";
import type { ConntrackTuple } from "../../os/conntrack_entry.ts";
import type { PacketHeader, TraceStep } from "../../proxy/packet_trace.ts";
import { printableText } from "../../log/printable_text.ts";
import { hangingText, type TextLook, type TextStyle, textStyle } from "../cli/terminal_text.ts";
import type { TraceOutcome, TraceReport } from "./trace_report.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";

/** Width of the names of facts. */
const INDENT = 9;
const RULE_INDENT = 4;

/** The whole report. */
export function renderTrace(report: TraceReport, look: TextLook = {}): string {
  const view = textStyle(look);
  const { mode, node, way, notes } = report;
  const lines = [
    fact("Packet", packetText(report), view),
    fact("Service", serviceText(report), view),
    fact("Seen by", `${way}, in mode ${mode} on node ${node}`, view),
    "",
    ...report.steps.flatMap((step) => stepLines(step, view)),
    ...(report.steps.length === 0 ? [fact("Rules", noStepsText(report), view)] : []),
    "",
    fact("Result", outcomeText(report.outcome), view),
    ...trackedLines(report, view),
    ...comparisonLines(report, view),
    ...notes.map((note) => fact("Note", note, view)),
  ];
  return `${lines.join("\n")}\n`;
}

/** Returns e.g. `TCP 10.0.0.1:40000 -> 10.96.0.1:80`. */
function packetLine({ packet }: Pick<TraceReport, "packet">): string {
  const { protocol, from, sourcePort, to, port } = packet;
  const source = sourcePort === undefined ? from : formatHostPort(from, sourcePort);
  return `${protocol} ${source} -> ${formatHostPort(to, port)}`;
}

function packetText(report: TraceReport): string {
  const { origin } = report;
  const line = packetLine(report);
  if (origin.kind === "waited for") return `${line}, which came by`;
  return `${line}, sent by this command (${origin.what}): ${origin.result}`;
}

function serviceText({ service }: TraceReport): string {
  return service === undefined
    ? "none has this address and port"
    : `${service.key}, ${service.role}`;
}

/** The tables of NAT see the first packet of a flow only. */
function noStepsText({ conntrack, mode, origin }: TraceReport): string {
  return conntrack !== undefined && !MODE_TRAITS[mode].forwardsItself &&
      origin.kind === "waited for"
    ? "no rule was asked: the kernel knows this flow and treats it like its first packet"
    : "no watched rule matched it";
}

function stepLines(
  { place, rule, verdict, header, meaning }: TraceStep,
  view: TextStyle,
): string[] {
  const { width, colors } = view;
  const plain = printableText(`${place}: ${rule === undefined ? "end of chain, " : ""}${verdict}`);
  const text = (words: string, indent: number) =>
    wrapText(printableText(words), { width, indent }).split("\n");
  return [
    ...(header === undefined ? [] : [colors.dim(`  [${printableText(headerText(header))}]`)]),
    ...text(plain, 2).map((line) => /^ *.*: (drop|reject)/.test(line) ? colors.red(line) : line),
    ...(rule === undefined || rule === "" || rule === verdict
      ? []
      : text(rule, RULE_INDENT).map(colors.dim)),
    ...(meaning === undefined ? [] : text(`= ${meaning}`, RULE_INDENT).map(colors.cyan)),
  ];
}

function headerText(header: PacketHeader): string {
  const { source, destination, sourcePort, destinationPort, arrivedBy, leavesBy } = header;
  const end = (address: string, port: number | undefined) =>
    port === undefined ? address : formatHostPort(address, port);
  const by = arrivedBy ? `, arrives by ${arrivedBy}` : leavesBy ? `, leaves by ${leavesBy}` : "";
  return `${end(source, sourcePort)} -> ${end(destination, destinationPort)}${by}`;
}

function outcomeText(outcome: TraceOutcome): string {
  switch (outcome.kind) {
    case "forwarded": {
      const seen = outcome.seenAs === undefined ? "" : `, which sees ${outcome.seenAs} as client`;
      return `forwarded to ${outcome.endpoint}${seen}`;
    }
    case "rejected":
    case "dropped": {
      const { by } = outcome;
      return by === undefined
        ? `${outcome.kind}: no program listens on that address`
        : `${outcome.kind} in ${by.place}`;
    }
    case "lost":
      return `not seen any more after ${outcome.by.place}, which changed its destination: the ` +
        "kernel may have no route to the endpoint for it";
    case "unchanged":
      return "went on as it was: no Service had a part in it";
    case "not seen":
      return "the packet was not seen";
  }
}

function trackedLines({ conntrack }: TraceReport, view: TextStyle): readonly string[] {
  if (conntrack === undefined) return [];
  const { original, reply, state } = conntrack;
  const text = `${tupleText(original)}, answered ${tupleText(reply)}${state ? ` (${state})` : ""}`;
  return [fact("Tracked", text, view)];
}

function tupleText({ source, sourcePort, destination, destinationPort }: ConntrackTuple): string {
  return `${formatHostPort(source, sourcePort)} -> ${formatHostPort(destination, destinationPort)}`;
}

function comparisonLines({ comparison }: TraceReport, view: TextStyle): readonly string[] {
  if (comparison === undefined) return [];
  const { expected, differences } = comparison;
  const { colors } = view;
  if (differences.length === 0) return [fact("Explain", `agrees: ${expected}`, view)];
  return differences.map((each) => colors.red(fact("Explain", `differs: ${each}`, view)));
}

function fact(name: string, text: string, { width }: TextStyle): string {
  return hangingText(name.padEnd(INDENT), text, { width });
}
