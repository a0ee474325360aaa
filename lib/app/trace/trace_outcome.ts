/**
 * Derives the outcome of a packet from its path, connection tracking and the result of sending it.
 * Pure.
 */
import { formatHostPort } from "../../net/port.ts";
import type { ConntrackEntry } from "../../os/conntrack_entry.ts";
import type { TracedPath } from "../../proxy/packet_trace.ts";
import { NO_ROUTE, REFUSED } from "./send_packet.ts";
import type { TraceOrigin, TraceOutcome } from "./trace_report.ts";

/** What is known beside the rules. */
interface OutcomeEvidence {
  readonly entry: ConntrackEntry | undefined;
  readonly origin: TraceOrigin;
  /** Whether rules of the kernel decide: else its table of connections says nothing of endpoints. */
  readonly isInKernel: boolean;
}

/** Decides. Where the kernel tracks the connection, its entry says more than the rules. */
export function outcomeOf(
  path: TracedPath,
  { entry, origin, isInKernel }: OutcomeEvidence,
): TraceOutcome {
  if (path.ending === "rejected" || path.ending === "dropped") {
    const by = path.steps.at(-1);
    return { kind: path.ending, ...(by && { by }) };
  }
  // Counters may have moved all the same, by packets of others.
  if (origin.kind === "sent" && origin.result === NO_ROUTE) return { kind: "not seen" };
  if (path.endpoint !== undefined) {
    const seenAs = path.seenAs ?? entry?.reply.destination;
    return { kind: "forwarded", endpoint: path.endpoint, ...(seenAs && { seenAs }) };
  }
  if (entry !== undefined && isInKernel) return byEntry(entry);
  // A connection that its endpoint refused is not tracked any more.
  if (path.turnedTo !== undefined) return { kind: "forwarded", endpoint: path.turnedTo };
  if (path.ending === "not seen") return unseen(origin, isInKernel);
  return byHeaders(path);
}

/** The kernel refuses what nobody listens for; a forwarder has no part in what it did not take. */
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

/** The packet as it was seen last, against what it was at first. */
function byHeaders({ header, steps }: TracedPath): TraceOutcome {
  const last = steps.findLast((step) => step.header !== undefined)?.header;
  if (header === undefined || last === undefined) return { kind: "unchanged" };
  const { destination, destinationPort = 0 } = last;
  if (destination === header.destination && destinationPort === header.destinationPort) {
    return { kind: "unchanged" };
  }
  return { kind: "forwarded", endpoint: formatHostPort(destination, destinationPort) };
}
