/**
 * The parts of the configuration that single modes read.
 *
 * @module
 */
import { METRICS_PORT, tryParseListenAddress } from "../../config/listen_address.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { BackendOptions } from "../dependencies.ts";

/** Returns the settings that backends of all modes and IP families are created with. */
export function modeSettingsOf(
  { proxy, relay }: Pick<LoadedConfiguration, "proxy" | "relay">,
): Pick<BackendOptions, "iptables" | "ipvs" | "nftables" | "relay" | "localListeners"> {
  const { iptables, ipvs, nftables, metricsBindAddress } = proxy;
  const metrics = tryParseListenAddress(metricsBindAddress, METRICS_PORT);
  return { iptables, ipvs, nftables, relay, localListeners: metrics ? [metrics] : [] };
}

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
  };
}
