import type {
  ServedAddress,
  ServerLoad,
  ServerRates,
  ServiceInspection,
} from "../../lib/proxy/service_mode.ts";
import { tryParsePort } from "../../lib/net/port.ts";
import { contestedAddressesOf } from "../../lib/proxy/frontend.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { IpvsLayout } from "./layout.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import { renderService } from "./render_service.ts";
import { addressOfServer, type ServerKey } from "./virtual_server.ts";

/** The context besides the plan. */
interface InspectionContext {
  readonly layout: IpvsLayout;
  /** Virtual servers that the kernel holds. */
  readonly seen: ReadonlyMap<ServerKey, SeenServer>;
  readonly rates: ReadonlyMap<ServerKey, ServerRates>;
}

/** The virtual servers of a ServicePort, and the connections that are remembered for them. */
export function inspectService(
  plan: ServicePlan,
  { layout, seen, rates }: InspectionContext,
): ServiceInspection {
  const addresses: ServedAddress[] = [];
  let connections = 0;
  for (const { server: { key }, role } of renderService(plan, layout).fronts) {
    const { address, port, protocol } = addressOfServer(key) ?? {};
    const number = port === undefined ? undefined : tryParsePort(port);
    if (address === undefined || protocol === undefined || number === undefined) continue;
    const isOurs = layout.server(key)?.owner === plan.key;
    const reals = isOurs ? seen.get(key)?.reals ?? [] : [];
    const load = isOurs ? loadOf(seen.get(key), rates.get(key)) : undefined;
    connections += (load?.active ?? 0) + (load?.inactive ?? 0);
    addresses.push({
      role,
      address,
      port: number,
      protocol,
      state: !isOurs
        ? "quarantined"
        : reals.some(({ weight }) => weight > 0)
        ? "serving"
        : "refusing",
      ...(load && { load }),
    });
  }
  for (const place of contestedAddressesOf(plan, layout.shared.nodePortAddresses)) {
    addresses.push({ ...place, protocol: plan.protocol, state: "quarantined" });
  }
  return { key: plan.key, addresses, connections };
}

function loadOf(
  server: SeenServer | undefined,
  rates: ServerRates | undefined,
): ServerLoad | undefined {
  if (server === undefined) return undefined;
  let active = 0;
  let inactive = 0;
  for (const real of server.reals) {
    active += real.active;
    inactive += real.inactive;
  }
  return { active, inactive, ...(rates && { rates }) };
}
