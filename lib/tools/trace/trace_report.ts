/**
 * What a trace reports: the packet, its path, and what became of it, from the path, connection tracking
 * and the result of sending it, compared with its explanation. Pure.
 */
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import { formatHostPort } from "../../net/port.ts";
import type { ConntrackEntry } from "../../os/conntrack.ts";
import { type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import type { FlowQuery } from "../../proxy/flow_watches.ts";
import type { PacketHeader, TracedPath, TraceStep } from "../../proxy/packet_trace.ts";
import type { ExplainedPacket } from "../explain/explain_report.ts";
import type { Report, Row } from "../report.ts";

/** The result of a packet that was refused. */
export const REFUSED = "refused";
/** The result without a route: rules only see a packet that has one. */
export const NO_ROUTE =
  "not sent: this machine has no route to that address, not even a default one";

/** What became of the packet: `ADDRESS:PORT`, the client address that it sees, and the step that did it, if known. */
export type TraceOutcome =
  | { readonly kind: "forwarded"; readonly endpoint: string; readonly seenAs?: IpAddress }
  | { readonly kind: "rejected" | "dropped"; readonly by?: TraceStep }
  /** The step changed the destination, and nothing was seen of the packet after that. */
  | { readonly kind: "lost"; readonly by: TraceStep }
  /** The destination was not changed. */
  | { readonly kind: "unchanged" }
  | { readonly kind: "not seen" };

/** The source of the packet, e.g. `a TCP SYN` with the result `refused` or `no answer within 0.4 s`. */
export type TraceOrigin =
  | { readonly kind: "sent"; readonly what: string; readonly result: string }
  | { readonly kind: "waited for" };

/** The report, as `--json` prints it. */
export interface TraceReport {
  readonly mode: BackendMode;
  readonly node: string;
  /** The requested packet. */
  readonly packet: Omit<FlowQuery, "from"> & {
    readonly family: IpFamily;
    readonly from: IpAddress | "any";
  };
  readonly origin: TraceOrigin;
  /** As the end of "seen by …". */
  readonly way: string;
  /** The ServicePort that has the address, and the role of the address. */
  readonly service?: { readonly key: string; readonly role: string };
  readonly steps: readonly TraceStep[];
  readonly outcome: TraceOutcome;
  /** The entry of connection tracking, if one was found. */
  readonly conntrack?: ConntrackEntry;
  /** The comparison with the explanation. Absent if nothing was seen. */
  readonly comparison?: {
    /** The headline of the explanation. */
    readonly expected: string;
    /** Empty if the path is as expected. */
    readonly differences: readonly string[];
  };
  /** One sentence each. */
  readonly notes: readonly string[];
}

/** A rule that changes the destination, of nft or iptables. */
const CHANGES_DESTINATION = /\bdnat\b/i;

/**
 * Derives the outcome. An entry of connection tracking is more precise than the rules, but where no rule
 * of the kernel decides, it does not know the endpoint.
 */
export function outcomeOf(
  { steps, ending, header, endpoint, seenAs, turnedTo }: TracedPath,
  entry: ConntrackEntry | undefined,
  origin: TraceOrigin,
  isInKernel: boolean,
): TraceOutcome {
  const last = steps.at(-1);
  if (ending === "rejected" || ending === "dropped") {
    return { kind: ending, ...(last && { by: last }) };
  }
  // Other packets may have moved the counters.
  if (origin.kind === "sent" && origin.result === NO_ROUTE) return { kind: "not seen" };
  const { original, reply } = entry ?? {};
  if (endpoint !== undefined) {
    const seen = seenAs ?? reply?.destination;
    return { kind: "forwarded", endpoint, ...(seen && { seenAs: seen }) };
  }
  if (original && reply && isInKernel) {
    const isTurned = reply.source !== original.destination ||
      reply.sourcePort !== original.destinationPort;
    if (!isTurned) return { kind: "unchanged" };
    const endpoint = formatHostPort(reply.source, reply.sourcePort);
    return { kind: "forwarded", endpoint, seenAs: reply.destination };
  }
  // A connection that the endpoint refused is no longer tracked.
  if (turnedTo !== undefined) return { kind: "forwarded", endpoint: turnedTo };
  if (ending === "not seen") {
    if (origin.kind !== "sent") return { kind: "not seen" };
    // The kernel refuses a port without a listener; the forwarder does not see that packet.
    if (origin.result === REFUSED) return { kind: "rejected" };
    return { kind: isInKernel ? "not seen" : "unchanged" };
  }
  // The chains of the next hook would show the new destination.
  if (last?.rule !== undefined && CHANGES_DESTINATION.test(last.rule)) {
    return { kind: "lost", by: last };
  }
  const now = steps.findLast((step) => step.header !== undefined)?.header;
  const isUnchanged = header === undefined || now === undefined ||
    (now.destination === header.destination && now.destinationPort === header.destinationPort);
  if (isUnchanged) return { kind: "unchanged" };
  return {
    kind: "forwarded",
    endpoint: formatHostPort(now.destination, now.destinationPort ?? 0),
  };
}

const EXPECTED: Readonly<Record<string, TraceOutcome["kind"]>> = {
  forward: "forwarded",
  reject: "rejected",
  drop: "dropped",
  passes: "unchanged",
};

const SEEN: Readonly<Partial<Record<TraceOutcome["kind"], string>>> = {
  lost: "lost after its destination was changed",
  unchanged: "left as it was",
};

/** Compares verdict, endpoint and source address. `sender`: the source address of the packet. */
export function compareWithExplanation(
  { verdict, endpoints, headline: expected }: Pick<
    ExplainedPacket,
    "endpoints" | "headline" | "verdict"
  >,
  outcome: TraceOutcome,
  nodeAddresses: readonly IpAddress[],
  sender: IpAddress,
): NonNullable<TraceReport["comparison"]> {
  const differs = (difference: string) => ({ expected, differences: [difference] });
  const agrees = { expected, differences: [] };
  const kind = EXPECTED[verdict.kind === "unclaimed" ? verdict.outcome : verdict.kind];
  // No program listens there, which no Service decides.
  const hasNoListener = outcome.kind === "rejected" && outcome.by === undefined;
  if (kind === "unchanged" && hasNoListener) return agrees;
  if (outcome.kind !== kind) {
    const seen = outcome.kind === "forwarded"
      ? `forwarded to ${outcome.endpoint}`
      : SEEN[outcome.kind] ?? outcome.kind;
    return differs(`the packet was ${seen}; expected: ${expected}`);
  }
  if (outcome.kind !== "forwarded") return agrees;
  const endpoint = endpoints.find(({ key }) => key === outcome.endpoint);
  if (!endpoint?.eligible) {
    const why = endpoint?.exclusion === undefined ? "" : ` (${endpoint.exclusion})`;
    return differs(`it went to ${outcome.endpoint}, which may not get it${why}`);
  }
  const { seenAs } = outcome;
  if (seenAs === undefined || endpoint.seesNode === undefined) return agrees;
  // The node's own packets have an address of the node in any case.
  const isRight = endpoint.seesNode ? nodeAddresses.includes(seenAs) : seenAs === sender;
  const due = endpoint.seesNode ? "an address of this node" : `the sender's own ${sender}`;
  return isRight ? agrees : differs(`the endpoint sees ${seenAs} as client, ${due} was due`);
}

/** Shows the report. */
export function traceView(trace: TraceReport): Report {
  const { mode, node, way, service, steps, outcome, conntrack, comparison, notes, origin } = trace;
  const { protocol, from, sourcePort, to, port } = trace.packet;
  const { expected, differences = [] } = comparison ?? {};
  const sent = origin.kind === "waited for"
    ? "which came by"
    : `sent by this command (${origin.what}): ${origin.result}`;
  // The tables of NAT see the first packet of a flow only.
  const isKnown = conntrack && !MODE_TRAITS[mode].forwardsItself && origin.kind === "waited for";
  const none = isKnown
    ? "no rule was asked: the kernel knows this flow and treats it like its first packet"
    : "no watched rule matched it";
  const packet: readonly Row[] = [
    {
      cells: [
        "Packet",
        `${protocol} ${endText(from, sourcePort)} -> ${formatHostPort(to, port)}, ${sent}`,
      ],
    },
    {
      cells: [
        "Service",
        service ? `${service.key}, ${service.role}` : "none has this address and port",
      ],
    },
    { cells: ["Seen by", `${way}, in mode ${mode} on node ${node}`] },
    ...(steps.length === 0 ? [{ cells: ["Rules", none] }] : []),
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
    ...(expected !== undefined && differences.length === 0
      ? [{ cells: ["Explain", `agrees: ${expected}`] }]
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

function stepRows({ place, rule, verdict, header, meaning }: TraceStep): readonly Row[] {
  const { arrivedBy, leavesBy } = header ?? {};
  const by = arrivedBy ? `, arrives by ${arrivedBy}` : leavesBy ? `, leaves by ${leavesBy}` : "";
  const text = `${place}: ${rule === undefined ? "end of chain, " : ""}${verdict}`;
  const detail = [
    ...(rule === undefined || rule === "" || rule === verdict ? [] : [rule]),
    ...(meaning === undefined ? [] : [`= ${meaning}`]),
  ];
  return [
    ...(header ? [{ cells: [`[${tupleText(header)}${by}]`], tone: "detail" } as const] : []),
    { cells: [text], detail, ...(/^(drop|reject)/.test(verdict) && { tone: "bad" }) },
  ];
}

function endText(address: string, port: number | undefined): string {
  return port === undefined ? address : formatHostPort(address, port);
}

function tupleText(
  { source, sourcePort, destination, destinationPort }: PacketHeader | ConntrackEntry["original"],
): string {
  return `${endText(source, sourcePort)} -> ${endText(destination, destinationPort)}`;
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
