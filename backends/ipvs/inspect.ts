import type {
  ServedAddress,
  ServerLoad,
  ServerRates,
  ServiceInspection,
} from "../../lib/proxy/service_mode.ts";
import { contestedAddressesOf } from "../../lib/proxy/frontend.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { IpvsLayout } from "./layout.ts";
import type { SeenServer, ServerKey } from "../netfilter/virtual_servers.ts";
import { renderService } from "./render_service.ts";
import type { Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { TimeSlice } from "../../lib/os/time_slice.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";

interface InspectionContext {
  readonly layout: IpvsLayout;
  /** Virtual servers that the kernel holds. */
  readonly seen: ReadonlyMap<ServerKey, SeenServer>;
  readonly rates: ReadonlyMap<ServerKey, ServerRates>;
}

/** The virtual servers of a ServicePort, and the connections that are remembered for them. */
function inspectService(
  plan: ServicePlan,
  { layout, seen, rates }: InspectionContext,
): ServiceInspection {
  const addresses: ServedAddress[] = [];
  let connections = 0;
  for (const { address, port, protocol, role, server } of renderService(plan, layout).frontends) {
    const reals = seen.get(server)?.reals ?? [];
    const load = loadOf(seen.get(server), rates.get(server));
    connections += (load?.active ?? 0) + (load?.inactive ?? 0);
    addresses.push({
      role,
      address,
      port,
      protocol,
      state: reals.some(({ weight }) => weight > 0) ? "serving" : "refusing",
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

interface InspectionDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly layout: IpvsLayout;
  readonly runner: Pick<IpvsRunner, "rates" | "servers">;
}

/** Inspects all ServicePorts, or these. */
export async function inspectServices(
  { clock, logger, layout, runner }: InspectionDependencies,
  keys?: readonly ServicePortKey[],
): Promise<readonly ServiceInspection[]> {
  if (keys?.length === 0) return [];
  const servers = await runner.servers();
  const seen = new Map(servers.map((server) => [server.key, server]));
  const rates = isBusy(servers) ? await ratesOf({ logger, runner }) : new Map();
  const slice = new TimeSlice(clock);
  const services: ServiceInspection[] = [];
  for (const key of keys ?? layout.keys) {
    const plan = layout.plan(key);
    if (plan) services.push(inspectService(plan, { layout, seen, rates }));
    await slice.pause();
  }
  return services;
}

/** If no connection is remembered, there was none for at least a minute. */
function isBusy(servers: readonly SeenServer[]): boolean {
  return servers.some(({ reals }) => reals.some(({ active, inactive }) => active + inactive > 0));
}

/** A status without rates is better than none. */
async function ratesOf(
  { logger, runner }: Pick<InspectionDependencies, "logger" | "runner">,
): Promise<ReadonlyMap<ServerKey, ServerRates>> {
  try {
    return await runner.rates();
  } catch (error) {
    logger.verbose(2, "Cannot read rates of virtual servers", { error });
    return new Map();
  }
}
