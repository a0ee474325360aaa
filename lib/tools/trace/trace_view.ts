/** The answer of `trace`: the packet, its path, and what became of it. Pure. */
import { formatHostPort } from "../../net/port.ts";
import type { ConntrackTuple } from "../../os/conntrack_entry.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import type { PacketHeader, TraceStep } from "../../proxy/packet_trace.ts";
import type { Report, Row } from "../report.ts";
import type { TraceOutcome, TraceReport } from "./trace_outcome.ts";

/** Makes the report. */
export function traceView(trace: TraceReport): Report {
  const { mode, node, way, service, steps, outcome, conntrack, comparison, notes } = trace;
  const differences = comparison?.differences ?? [];
  const packet: readonly Row[] = [
    { cells: ["Packet", packetText(trace)] },
    {
      cells: [
        "Service",
        service ? `${service.key}, ${service.role}` : "none has this address and port",
      ],
    },
    { cells: ["Seen by", `${way}, in mode ${mode} on node ${node}`] },
    ...(steps.length === 0 ? [{ cells: ["Rules", noStepsText(trace)] }] : []),
  ];
  const result: readonly Row[] = [
    { cells: ["Result", outcomeText(outcome)] },
    ...(conntrack
      ? [{
        cells: [
          "Tracked",
          `${tupleText(conntrack.original)}, answered ${tupleText(conntrack.reply)}` +
          (conntrack.state ? ` (${conntrack.state})` : ""),
        ],
      }]
      : []),
    ...(comparison && differences.length === 0
      ? [{ cells: ["Explain", `agrees: ${comparison.expected}`] }]
      : []),
    ...differences.map((
      each,
    ) => ({ cells: ["Explain", `differs: ${each}`], tone: "bad" } as const)),
    ...notes.map((note) => ({ cells: ["Note", note] })),
  ];
  return {
    title: "",
    rows: packet,
    parts: [
      ...(steps.length === 0 ? [] : [{ title: "", rows: steps.flatMap(stepRows), parts: [] }]),
      { title: "", rows: result, parts: [] },
    ],
  };
}

/** Returns e.g. `TCP 10.0.0.1:40000 -> 10.96.0.1:80, which came by`. */
function packetText({ packet, origin }: TraceReport): string {
  const { protocol, from, sourcePort, to, port } = packet;
  const line = `${protocol} ${endText(from, sourcePort)} -> ${formatHostPort(to, port)}`;
  return origin.kind === "waited for"
    ? `${line}, which came by`
    : `${line}, sent by this command (${origin.what}): ${origin.result}`;
}

/** The tables of NAT see the first packet of a flow only. */
function noStepsText({ conntrack, mode, origin }: TraceReport): string {
  return conntrack !== undefined && !MODE_TRAITS[mode].forwardsItself &&
      origin.kind === "waited for"
    ? "no rule was asked: the kernel knows this flow and treats it like its first packet"
    : "no watched rule matched it";
}

function stepRows({ place, rule, verdict, header, meaning }: TraceStep): readonly Row[] {
  const text = `${place}: ${rule === undefined ? "end of chain, " : ""}${verdict}`;
  const detail = [
    ...(rule === undefined || rule === "" || rule === verdict ? [] : [rule]),
    ...(meaning === undefined ? [] : [`= ${meaning}`]),
  ];
  return [
    ...(header ? [{ cells: [`[${headerText(header)}]`], tone: "detail" } as const] : []),
    { cells: [text], detail, ...(/^(drop|reject)/.test(verdict) && { tone: "bad" }) },
  ];
}

function headerText(header: PacketHeader): string {
  const { source, destination, sourcePort, destinationPort, arrivedBy, leavesBy } = header;
  const by = arrivedBy ? `, arrives by ${arrivedBy}` : leavesBy ? `, leaves by ${leavesBy}` : "";
  return `${endText(source, sourcePort)} -> ${endText(destination, destinationPort)}${by}`;
}

function endText(address: string, port: number | undefined): string {
  return port === undefined ? address : formatHostPort(address, port);
}

function tupleText({ source, sourcePort, destination, destinationPort }: ConntrackTuple): string {
  return `${formatHostPort(source, sourcePort)} -> ${formatHostPort(destination, destinationPort)}`;
}

function outcomeText(outcome: TraceOutcome): string {
  switch (outcome.kind) {
    case "forwarded": {
      const seen = outcome.seenAs === undefined ? "" : `, which sees ${outcome.seenAs} as client`;
      return `forwarded to ${outcome.endpoint}${seen}`;
    }
    case "rejected":
    case "dropped":
      return outcome.by
        ? `${outcome.kind} in ${outcome.by.place}`
        : `${outcome.kind}: no program listens on that address`;
    case "lost":
      return `not seen any more after ${outcome.by.place}, which changed its destination: the ` +
        "kernel may have no route to the endpoint for it";
    case "unchanged":
      return "went on as it was: no Service had a part in it";
    case "not seen":
      return "the packet was not seen";
  }
}
