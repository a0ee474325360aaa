/**
 * Combines the branches that a tracer followed into the outcome of a packet of the table, in any
 * kernel mode.
 */
import type { IpAddress } from "../../lib/net/ip_address.ts";
import { formatHostPort } from "../../lib/net/port.ts";
import { ADDRESSES } from "../support/builders/address_plan.ts";
import type { WalkOutcome } from "../support/walk/iptables_walk.ts";
import type { WalkedPacket } from "../support/walk/walked_packet.ts";
import { type PacketFlowCase, packetOrigin, type PacketVerdict } from "./packet_flow_case.ts";
/** One way that chance may take, as far as the table asks. */
export type TracedOutcome = Pick<
  WalkOutcome,
  "verdict" | "probability" | "endpoint" | "masquerade"
>;

/** The packet of a case, as a tracer takes it. */
export function tracedPacket({ from, family, to, port, protocol }: PacketFlowCase): WalkedPacket {
  const { address, interfaceName } = packetOrigin(from, family);
  const { loopback, nodeSecond } = ADDRESSES[family];
  const isLooped = from === "node" && (to === loopback || to === nodeSecond);
  return {
    // The kernel chooses the address itself as source for what stays on lo.
    source: isLooped ? to : address,
    destination: to,
    port,
    protocol,
    ...(interfaceName !== undefined && { inInterface: interfaceName }),
  };
}

/**
 * Returns the common outcome of all paths. Throws if chance decides more than the endpoint, or is
 * not fair.
 */
export function verdictOf(outcomes: readonly TracedOutcome[]): PacketVerdict {
  const kinds = new Set(
    outcomes.map(({ endpoint, verdict }) =>
      verdict === "ACCEPT" ? endpoint ? "endpoint" : "UNCLAIMED" : verdict
    ),
  );
  const [kind] = kinds;
  if (kinds.size !== 1 || kind === undefined) {
    throw new Error(`Cannot tell what becomes of the packet: ${[...kinds].join(" or ")}`);
  }
  if (kind !== "endpoint") return kind;
  const fair = 1 / outcomes.length;
  for (const { probability } of outcomes) {
    if (Math.abs(probability - fair) > 1e-8) {
      throw new Error(`Cannot accept a chance of ${probability} among ${outcomes.length}`);
    }
  }
  return outcomes.map(endpointText).sort();
}

/** Returns the destination of a packet in the form of the cases; empty = it was not rewritten. */
export function endpointText({ endpoint }: TracedOutcome): string {
  return endpoint ? formatHostPort(endpoint.address, endpoint.port) : "";
}

/**
 * Whether the source is masqueraded. An endpoint that gets its own packet sees the node; apart from it,
 * chance decides nothing.
 */
export function isMasqueraded(outcomes: readonly TracedOutcome[], source: IpAddress): boolean {
  const own = outcomes.filter(({ endpoint }) => endpoint?.address === source);
  if (own.some(({ masquerade }) => !masquerade)) {
    throw new Error(`Cannot accept that ${source} is sent its own packet as it is`);
  }
  const others = outcomes.filter((outcome) => !own.includes(outcome));
  if (new Set(others.map(({ masquerade }) => masquerade)).size > 1) {
    throw new Error("Cannot accept that chance decides whether the source is kept");
  }
  return outcomes.every(({ masquerade }) => masquerade);
}
