/**
 * The nftables table that marks one packet for tracing: of its own, never one of anybody's rules.
 *
 * The kernel removes it when the process that made it is gone (`flags owner`, Linux 5.12): that
 * process is `nft -i`, which ends with its input, which ends with kube-relay. So nothing stays
 * behind, whoever is killed and by what. The mark is that of the kernel's packet, not of nftables:
 * rules of iptables, of either variant, tell of a marked packet too.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { nftFamily } from "../nft/nft_objects.ts";
import type { WatchedPacket } from "../../../lib/explain/packet_trace.ts";

const PREFIX = "kube-relay-trace-";

/** Its name, without the family. */
export function markTableName(id: string): string {
  return `${PREFIX}${id}`;
}

/** Whether a table is one that some kube-relay traces with. */
export function isTraceTable(name: string): boolean {
  return name.startsWith(PREFIX);
}

/** Loopback address from and to which the packets go that show whether a tool watches already. */
export const BEACON_ADDRESS: Readonly<Record<IpFamily, string>> = {
  IPv4: "127.0.0.1",
  IPv6: "::1",
};

/** Before everybody's rules: those of raw stand at -300. */
const FIRST = -350;
/**
 * After conntrack, which is at -200, and before every rule of a Service proxy: where a flow can be
 * told from a new one in no other way, what is marked must be the first packet of one.
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
 * What to write. Only the first packet that is alike is marked: a SYN that is sent again would be told
 * of twice. So the rule may come only when somebody watches: of a Service that is in use the first
 * packet comes by at once.
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

/** Whether the rule that marks the packet is among those that `nft list table` prints. */
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
