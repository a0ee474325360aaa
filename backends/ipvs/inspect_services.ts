import type { Logger } from "../../lib/log/logger.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { ServerRates, ServiceInspection } from "../../lib/proxy/service_mode.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { TimeSlice } from "../../lib/os/time_slice.ts";
import { inspectService } from "./inspect.ts";
import type { IpvsRunner } from "./ipvs_runner.ts";
import type { IpvsLayout } from "./layout.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import type { ServerKey } from "./virtual_server.ts";

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
