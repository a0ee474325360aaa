/**
 * What a trace reports: the outcome of the packet, from its path, connection tracking and the result of
 * sending it, and the comparison with its explanation. Pure.
 */
import type { IpAddress, IpFamily } from "../../net/ip_address.ts";
import { formatHostPort } from "../../net/port.ts";
import type { ConntrackEntry } from "../../os/conntrack_entry.ts";
import type { BackendMode } from "../../proxy/backend.ts";
import type { FlowQuery } from "../../proxy/flow_watches.ts";
import type { ExplainedVerdict, PacketExplanation } from "../../proxy/packet_explanation.ts";
import type { TracedPath, TraceStep } from "../../proxy/packet_trace.ts";

/** The result of a packet that was refused. */
export const REFUSED = "refused";
/** The result without a route: rules only see a packet that has one. */
export const NO_ROUTE =
  "not sent: this machine has no route to that address, not even a default one";

/** The requested packet. */
interface TracedPacket extends Omit<FlowQuery, "from"> {
  readonly family: IpFamily;
  readonly from: IpAddress | "any";
}

/** The result. */
export type TraceOutcome =
  | {
    readonly kind: "forwarded";
    /** `ADDRESS:PORT`. */
    readonly endpoint: string;
    /** The client address that the endpoint sees, if known. */
    readonly seenAs?: IpAddress;
  }
  | {
    readonly kind: "rejected" | "dropped";
    /** The step that did it, if known. */
    readonly by?: TraceStep;
  }
  /** The step changed the destination, and nothing was seen of the packet after that. */
  | { readonly kind: "lost"; readonly by: TraceStep }
  /** The destination was not changed. */
  | { readonly kind: "unchanged" }
  | { readonly kind: "not seen" };

/** The source of the packet. */
export type TraceOrigin =
  | {
    readonly kind: "sent";
    /** For example `a TCP SYN`. */
    readonly what: string;
    /** For example `connected`, `refused`, `no answer within 2s`. */
    readonly result: string;
  }
  | { readonly kind: "waited for" };

/** The comparison with the explanation. */
export interface TraceComparison {
  /** One sentence. */
  readonly expected: string;
  /** Empty if the path is as expected. */
  readonly differences: readonly string[];
}

/** The report, as `--json` prints it. */
export interface TraceReport {
  readonly mode: BackendMode;
  readonly node: string;
  readonly packet: TracedPacket;
  readonly origin: TraceOrigin;
  /** As the end of "seen by …". */
  readonly way: string;
  /** The ServicePort that has the address, and the role of the address. */
  readonly service?: { readonly key: string; readonly role: string };
  readonly steps: readonly TraceStep[];
  readonly outcome: TraceOutcome;
  /** The entry of connection tracking, if one was found. */
  readonly conntrack?: ConntrackEntry;
  /** Absent if nothing was seen. */
  readonly comparison?: TraceComparison;
  /** One sentence each. */
  readonly notes: readonly string[];
}

interface OutcomeEvidence {
  readonly entry: ConntrackEntry | undefined;
  readonly origin: TraceOrigin;
  /** Whether rules of the kernel decide; otherwise connection tracking does not know the endpoint. */
  readonly isInKernel: boolean;
}

/** Derives the outcome. An entry of connection tracking is more precise than the rules. */
export function outcomeOf(
  path: TracedPath,
  { entry, origin, isInKernel }: OutcomeEvidence,
): TraceOutcome {
  if (path.ending === "rejected" || path.ending === "dropped") {
    const by = path.steps.at(-1);
    return { kind: path.ending, ...(by && { by }) };
  }
  // Other packets may have moved the counters.
  if (origin.kind === "sent" && origin.result === NO_ROUTE) return { kind: "not seen" };
  if (path.endpoint !== undefined) {
    const seenAs = path.seenAs ?? entry?.reply.destination;
    return { kind: "forwarded", endpoint: path.endpoint, ...(seenAs && { seenAs }) };
  }
  if (entry !== undefined && isInKernel) return byEntry(entry);
  // A connection that the endpoint refused is no longer tracked.
  if (path.turnedTo !== undefined) return { kind: "forwarded", endpoint: path.turnedTo };
  if (path.ending === "not seen") return unseen(origin, isInKernel);
  return byHeaders(path);
}

/** The kernel refuses a port without a listener; the forwarder does not see that packet. */
function unseen(origin: TraceOrigin, isInKernel: boolean): TraceOutcome {
  if (origin.kind !== "sent") return { kind: "not seen" };
  if (origin.result === REFUSED) return { kind: "rejected" };
  return { kind: isInKernel ? "not seen" : "unchanged" };
}

function byEntry({ original, reply }: ConntrackEntry): TraceOutcome {
  const isTurned = reply.source !== original.destination ||
    reply.sourcePort !== original.destinationPort;
  if (!isTurned) return { kind: "unchanged" };
  return {
    kind: "forwarded",
    endpoint: formatHostPort(reply.source, reply.sourcePort),
    seenAs: reply.destination,
  };
}

/** A rule that changes the destination, of nft or iptables. */
const CHANGES_DESTINATION = /\bdnat\b/i;

/** Compares the last header with the first one. */
function byHeaders({ header, steps }: TracedPath): TraceOutcome {
  // The chains of the next hook would show the new destination.
  const end = steps.at(-1);
  if (end?.rule !== undefined && CHANGES_DESTINATION.test(end.rule)) {
    return { kind: "lost", by: end };
  }
  const last = steps.findLast((step) => step.header !== undefined)?.header;
  if (header === undefined || last === undefined) return { kind: "unchanged" };
  const { destination, destinationPort = 0 } = last;
  if (destination === header.destination && destinationPort === header.destinationPort) {
    return { kind: "unchanged" };
  }
  return { kind: "forwarded", endpoint: formatHostPort(destination, destinationPort) };
}

interface SeenPacket {
  readonly outcome: TraceOutcome;
  readonly nodeAddresses: readonly IpAddress[];
  /** The source address of the packet. */
  readonly sender: IpAddress;
}

const MOST_NAMED = 4;

/** Compares verdict, endpoint and source address. */
export function compareWithExplanation(
  explanation: PacketExplanation,
  { outcome, nodeAddresses, sender }: SeenPacket,
): TraceComparison {
  const { verdict, endpoints } = explanation;
  const expected = expectedKind(verdict);
  const text = expectedText(explanation);
  // No program listens there, which no Service decides.
  const hasNoListener = outcome.kind === "rejected" && outcome.by === undefined;
  if (expected === "unchanged" && hasNoListener) return { expected: text, differences: [] };
  if (outcome.kind !== expected) {
    return {
      expected: text,
      differences: [`the packet was ${seenText(outcome)}, ${text} was due`],
    };
  }
  if (outcome.kind !== "forwarded") return { expected: text, differences: [] };
  const endpoint = endpoints.find(({ key }) => key === outcome.endpoint);
  if (endpoint === undefined || !endpoint.eligible) {
    const why = endpoint?.exclusion === undefined ? "" : ` (${endpoint.exclusion})`;
    return {
      expected: text,
      differences: [`it went to ${outcome.endpoint}, which is none of those${why}`],
    };
  }
  const { seenAs } = outcome;
  if (seenAs === undefined || endpoint.seesNode === undefined) {
    return { expected: text, differences: [] };
  }
  // The node's own packets have an address of the node in any case.
  const isRight = endpoint.seesNode ? nodeAddresses.includes(seenAs) : seenAs === sender;
  const due = endpoint.seesNode ? "an address of this node" : `the sender's own ${sender}`;
  return {
    expected: text,
    differences: isRight ? [] : [`the endpoint sees ${seenAs} as client, ${due} was due`],
  };
}

function expectedKind(verdict: ExplainedVerdict): TraceOutcome["kind"] {
  const kinds = {
    forward: "forwarded",
    reject: "rejected",
    drop: "dropped",
    passes: "unchanged",
  } as const;
  return kinds[verdict.kind === "unclaimed" ? verdict.outcome : verdict.kind];
}

function expectedText({ verdict, endpoints }: PacketExplanation): string {
  switch (verdict.kind) {
    case "forward": {
      const keys = endpoints.filter(({ eligible }) => eligible).map(({ key }) => key);
      const more = keys.length > MOST_NAMED ? ` and ${keys.length - MOST_NAMED} more` : "";
      return `forwarding to ${keys.slice(0, MOST_NAMED).join(", ")}${more}`;
    }
    case "reject":
    case "drop":
      return `a ${verdict.kind} (${verdict.why})`;
    case "unclaimed":
      return verdict.outcome === "passes" ? "no part of any Service" : `a ${verdict.outcome}`;
  }
}

function seenText(outcome: TraceOutcome): string {
  switch (outcome.kind) {
    case "forwarded":
      return `forwarded to ${outcome.endpoint}`;
    case "lost":
      return "lost after its destination was changed";
    case "unchanged":
      return "left as it was";
    default:
      return outcome.kind;
  }
}
