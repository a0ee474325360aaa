/**
 * The parts of the configuration that single modes read.
 *
 * @module
 */
import type { LoadedConfiguration } from "../config/load.ts";
import type { BackendOptions } from "./dependencies.ts";

/** What a backend of any mode is made with, whatever its IP family. */
export function modeSettingsOf(
  { proxy: { iptables, ipvs, nftables }, relay }: Pick<LoadedConfiguration, "proxy" | "relay">,
): Pick<BackendOptions, "iptables" | "ipvs" | "nftables" | "relay"> {
  return { iptables, ipvs, nftables, relay };
}
