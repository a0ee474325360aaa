import { type IpAddress, isLoopback } from "../../lib/net/ip_address.ts";
import type { IpvsLayout } from "./layout.ts";
import type { NodePortServers } from "./server_record.ts";

/** The sets of node ports without addresses. The set of SCTP contains the addresses. */
const SETS = [["tcp", "NODE-PORT-TCP"], ["udp", "NODE-PORT-UDP"]] as const;

/** Whether an address of the node can serve node ports. */
export function mayHaveNodePorts(address: IpAddress): boolean {
  // An endpoint cannot reply to a loopback address, and a link-local address needs its link.
  return !isLoopback(address) && !address.startsWith("fe80:");
}

/** Whether node ports were added or removed since the layout was settled. */
export function haveNodePortsChanged({ sets }: Pick<IpvsLayout, "sets">): boolean {
  return SETS.some(([, id]) => sets[id].missing.length + sets[id].stale.length > 0);
}

/** Returns the node ports as they were applied, with their addresses; empty without node ports. */
export function nodePortServers(
  { sets, shared }: Pick<IpvsLayout, "sets" | "shared">,
): NodePortServers {
  const ports = new Set(
    SETS.flatMap(([protocol, id]) => [...sets[id].applied()].map((port) => `${protocol} ${port}`)),
  );
  const addresses = ports.size === 0 ? [] : shared.nodePortAddresses.filter(mayHaveNodePorts);
  return { addresses: new Set(addresses), ports };
}
