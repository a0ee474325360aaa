/** Compares the real path of a packet with its explanation. Pure. */
import type { IpAddress } from "../../net/ip_address.ts";
import type { ExplainedVerdict, PacketExplanation } from "../../proxy/packet_explanation.ts";
import type { TraceComparison, TraceOutcome } from "./trace_report.ts";

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
