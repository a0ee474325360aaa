/**
 * The options of a backend that only inspects or cleans up.
 *
 * @module
 */
import type { LoadedConfiguration } from "../../config/load.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { BackendOptions } from "../dependencies.ts";
import { modeSettingsOf } from "./mode_settings.ts";

/** Returns the options of a backend that serves nothing, without knowledge of the node. */
export function idleBackendOptions(
  configuration: Pick<LoadedConfiguration, "proxy" | "relay">,
  family: IpFamily,
): BackendOptions {
  return {
    family,
    ...modeSettingsOf(configuration),
    // Nothing is counted.
    ...(configuration.relay.serviceCounters && { traffic: new ServiceTrafficTable().of(family) }),
    belongsTo: () => undefined,
  };
}
