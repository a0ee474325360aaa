import type { IpAddress } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { mayHaveNodePorts } from "./render_service.ts";
import type { NodePortServers } from "./server_record.ts";

/** Returns the node ports of plans with their addresses; empty without node ports. */
export function nodePortServers(
  plans: Iterable<Pick<ServicePlan, "nodePort" | "protocol">>,
  addresses: readonly IpAddress[],
): NodePortServers {
  const served = addresses.filter(mayHaveNodePorts);
  const ports = new Set<string>();
  for (const { nodePort, protocol } of served.length === 0 ? [] : plans) {
    // The set of SCTP contains the addresses.
    if (nodePort === undefined || protocol === "SCTP") continue;
    ports.add(`${protocol.toLowerCase()} ${nodePort}`);
  }
  return { addresses: new Set(ports.size === 0 ? [] : served), ports };
}
