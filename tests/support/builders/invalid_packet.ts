/** A packet that belongs to no connection. */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import { ADDRESSES } from "./address_plan.ts";
import type { ClusterTopology } from "../stages/cluster_topology.ts";

/** A port of the client. No program listens on it. */
export const INVALID_PORT = 4444;

/** A TCP header that opens and closes a connection at once, which no state of conntrack allows. */
const SYN_FIN = [0x30, 0x39, INVALID_PORT >> 8, INVALID_PORT & 255, ...Array(8).fill(0), 0x50, 0x03]
  .concat(Array(6).fill(0)).map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");

/** Sends one from a pod of the node to the client, through the node. Needs `bash` and `socat`. */
export async function sendInvalidPacket(
  { localPods: [pod] }: ClusterTopology,
  family: IpFamily,
): Promise<void> {
  const { client } = ADDRESSES[family];
  const to = family === "IPv4" ? `IP4-SENDTO:${client}:6` : `IP6-SENDTO:[${client}]:6`;
  await pod.output("bash", ["-c", `printf '${SYN_FIN}' | socat -u - '${to}'`]);
}
