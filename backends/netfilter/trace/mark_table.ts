/**
 * The nftables table that marks one packet for tracing, separate from all other rules.
 *
 * The kernel removes it when the process that created it ends (`flags owner`, Linux 5.12): `nft
 * -i`, which ends with its input, which ends with kube-relay. So nothing remains after any kill.
 * The mark is the kernel's packet trace flag: rules of both iptables variants report a marked
 * packet too.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { nftFamily } from "../nft/nft_objects.ts";
import type { WatchedPacket } from "../../../lib/proxy/packet_trace.ts";

const PREFIX = "kube-relay-trace-";

/** Its name, without the family. */
export function markTableName(id: string): string {
  return `${PREFIX}${id}`;
}

/** Whether a table belongs to a trace of any kube-relay. */
export function isTraceTable(name: string): boolean {
  return name.startsWith(PREFIX);
}

/** Loopback address from and to which the packets go that show whether a tool watches already. */
export const BEACON_ADDRESS: Readonly<Record<IpFamily, string>> = {
  IPv4: "127.0.0.1",
  IPv6: "::1",
};

/** Before all other rules: the table raw is at -300. */
const FIRST = -350;
/**
 * After conntrack at -200, and before every rule of a Service proxy. If flows can only be
 * identified by conntrack, the marked packet must be the first of one.
 */
const KNOWS_FLOWS = -175;

/** The two commands that make it, each on one line, as `nft -i` reads them. */
export interface MarkTableText {
  /** The table with the rule that marks beacons. */
  readonly table: string;
  /** The rule that marks the packet. */
  readonly rule: string;
}

/**
 * Renders the table. Only the first matching packet is marked, since a retransmitted SYN would be
 * reported twice. So the rule must only be added once the monitor runs: in a busy Service the first
 * packet comes at once.
 */
export function markTableText(
  packet: WatchedPacket,
  { table, beaconPort }: { readonly table: string; readonly beaconPort: number },
): MarkTableText {
  const { family, comesFrom } = packet;
  const ip = nftFamily(family);
  const beacon = `${ip} daddr ${BEACON_ADDRESS[family]} udp sport ${beaconPort} ` +
    `udp dport ${beaconPort} meta nftrace set 1`;
  const priority = knowsFlows(packet) ? KNOWS_FLOWS : FIRST;
  const chain = (hook: string, rule?: string) =>
    `chain ${hook} { type filter hook ${hook} priority ${priority}; ${rule ? `${rule}; ` : ""}}`;
  // A chain without a rule shows where the packet comes in again.
  const chains = [chain("prerouting"), chain("output", beacon)];
  const hook = comesFrom === "elsewhere" ? "prerouting" : "output";
  return {
    table: `add table ${ip} ${table} { flags owner; ${chains.join("; ")}; }\n`,
    rule: `add rule ${ip} ${table} ${hook} ${markRule(packet)}\n`,
  };
}

/** Whether a listing of `nft list table` contains the rule that marks the packet. */
export function isMarking(listing: string): boolean {
  return listing.includes("limit rate 1/day");
}

function markRule(packet: WatchedPacket): string {
  const { family, from, to, port, protocol, sourcePort } = packet;
  const ip = nftFamily(family);
  const th = protocol.toLowerCase();
  return [
    ...(from === undefined ? [] : [`${ip} saddr ${from}`]),
    `${ip} daddr ${to}`,
    ...(sourcePort === undefined ? [] : [`${th} sport ${sourcePort}`]),
    `${th} dport ${port}`,
    ...(protocol === "TCP" ? ["tcp flags & (syn | ack) == syn"] : []),
    ...(knowsFlows(packet) ? ["ct state new"] : []),
    "limit rate 1/day burst 1 packets meta nftrace set 1",
  ].join(" ");
}

function knowsFlows({ comesFrom, protocol }: WatchedPacket): boolean {
  return comesFrom === "elsewhere" && protocol !== "TCP";
}
