import type { IpvsLayout } from "./layout.ts";
import { mayHaveNodePorts } from "./render_service.ts";
import type { NodePortServers } from "./server_record.ts";

/** The sets of node ports without addresses. The set of SCTP contains the addresses. */
const SETS = [["tcp", "NODE-PORT-TCP"], ["udp", "NODE-PORT-UDP"]] as const;

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
