/**
 * What the kernel does for one ServicePort, for `status`. Pure.
 *
 * @module
 */
import type { ServedAddress, ServiceInspection } from "../../lib/proxy/backend.ts";
import { tryParsePort } from "../../lib/net/port.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { IpvsLayout } from "./layout.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import { renderService } from "./render_service.ts";
import { addressOfServer, type ServerKey } from "./virtual_server.ts";

/** What is known beside the plan. */
export interface InspectionContext {
  readonly layout: IpvsLayout;
  /** Virtual servers that the kernel holds. */
  readonly seen: ReadonlyMap<ServerKey, SeenServer>;
}

/** The virtual servers of a ServicePort, and the connections that are remembered for them. */
export function inspectService(
  plan: ServicePlan,
  { layout, seen }: InspectionContext,
): ServiceInspection {
  const addresses: ServedAddress[] = [];
  let connections = 0;
  for (const { server: { key }, isClusterIp } of renderService(plan, layout).fronts) {
    const { address, port, protocol } = addressOfServer(key) ?? {};
    const number = port === undefined ? undefined : tryParsePort(port);
    if (address === undefined || protocol === undefined || number === undefined) continue;
    const isOurs = layout.server(key)?.owner === plan.key;
    const reals = isOurs ? seen.get(key)?.reals ?? [] : [];
    connections += reals.reduce((sum, { active, inactive }) => sum + active + inactive, 0);
    addresses.push({
      role: isClusterIp
        ? "ClusterIP"
        : plan.externalIps.includes(address)
        ? "ExternalIP"
        : plan.loadBalancerVips.includes(address)
        ? "LoadBalancer"
        : "NodePort",
      address,
      port: number,
      protocol,
      state: !isOurs
        ? "quarantined"
        : reals.some(({ weight }) => weight > 0)
        ? "serving"
        : "refusing",
    });
  }
  return { key: plan.key, addresses, connections };
}
