import { formatHostPort } from "../../net/port.ts";
import type { WatchedPacket } from "../../proxy/packet_trace.ts";
import type { ExplainedPacket, ExplainReport } from "../explain/explain_report.ts";
import { parseFrom } from "../explain/packet_end_text.ts";
import { PacketEndsError } from "../explain/packet_scope.ts";

/** The packet as it is looked for, and what is to become of it. */
export interface ChosenPacket {
  readonly watched: WatchedPacket;
  readonly explained: ExplainedPacket;
}

const MOST_NAMED = 6;

/** Throws a PacketEndsError where several packets may be meant. */
export function choosePacket(
  { from: fromText, to, packets }: Pick<ExplainReport, "from" | "packets" | "to">,
): ChosenPacket {
  // Where both IP families are meant, it is the first of them.
  const candidates = packets.filter(({ family }) => family === packets[0]?.family);
  const [explained] = candidates;
  if (explained === undefined || candidates.length > 1) throw severalMeant(to, candidates);
  const { family, packet } = explained;
  const isNamed = parseFrom(fromText).kind === "address";
  const watched: WatchedPacket = {
    family,
    from: isNamed ? packet.from.address : undefined,
    to: packet.to,
    port: packet.port,
    protocol: packet.protocol,
    comesFrom: packet.from.kind === "node" ? "this machine" : "elsewhere",
  };
  return { watched, explained };
}

/** FROM of the packet that was seen: who it was for certain, and by which interface it came. */
export function seenFrom(
  fromText: string,
  { address, arrivedBy }: { readonly address: string; readonly arrivedBy: string | undefined },
): string {
  const sender = fromText === "outside" ? address : fromText;
  return arrivedBy === undefined || sender.includes("@") ? sender : `${sender}@${arrivedBy}`;
}

function severalMeant(to: string, packets: readonly ExplainedPacket[]): PacketEndsError {
  const named = packets.slice(0, MOST_NAMED)
    .map(({ packet: { to, port, protocol } }) => `${formatHostPort(to, port)}/${protocol}`);
  const more = packets.length > MOST_NAMED ? `, and ${packets.length - MOST_NAMED} more` : "";
  return new PacketEndsError(
    `Cannot trace several packets at once: '${to}' may be ${named.join(", ")}${more}; name one`,
  );
}
