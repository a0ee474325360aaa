/**
 * The parts of the configuration that single modes read.
 *
 * @module
 */
import { METRICS_PORT, tryParseListenAddress } from "../../config/listen_address.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { BackendOptions } from "../dependencies.ts";

/** Returns the settings that backends of all modes and IP families are created with. */
export function modeSettingsOf(
  { proxy, relay }: Pick<LoadedConfiguration, "proxy" | "relay">,
): Pick<BackendOptions, "iptables" | "ipvs" | "nftables" | "relay" | "localListeners"> {
  const { iptables, ipvs, nftables, metricsBindAddress } = proxy;
  const metrics = tryParseListenAddress(metricsBindAddress, METRICS_PORT);
  return { iptables, ipvs, nftables, relay, localListeners: metrics ? [metrics] : [] };
}
