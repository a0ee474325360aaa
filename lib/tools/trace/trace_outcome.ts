/**
 * Derives the outcome of a packet from its path, connection tracking and the result of sending it.
 * Pure.
 */
import { formatHostPort } from "../../net/port.ts";
import type { ConntrackEntry } from "../../os/conntrack_entry.ts";
import type { TracedPath } from "../../proxy/packet_trace.ts";
import { NO_ROUTE, REFUSED } from "./send_packet.ts";
import type { TraceOrigin, TraceOutcome } from "./trace_report.ts";

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
