/**
 * What a backend is made with that is only to look or to clean up.
 *
 * @module
 */
import type { LoadedConfiguration } from "../../config/load.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { BackendOptions } from "../dependencies.ts";
import { modeSettingsOf } from "./mode_settings.ts";

/** Options of a backend that serves nothing: nothing is known of the node, and nothing asked. */
export function idleBackendOptions(
  configuration: Pick<LoadedConfiguration, "proxy" | "relay">,
  family: IpFamily,
): BackendOptions {
  return {
    family,
    ...modeSettingsOf(configuration),
    // For what is to be shown of it: nothing is counted.
    ...(configuration.relay.serviceCounters && { traffic: new ServiceTrafficTable().of(family) }),
    belongsTo: () => undefined,
  };
}
