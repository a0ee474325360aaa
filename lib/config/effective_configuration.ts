import type { BackendMode } from "../proxy/backend.ts";
import { nodePortEntries } from "../proxy/node_port_addresses.ts";
import type { KubeProxyConfiguration } from "./configuration.ts";

/**
 * Fills in the mode and upstream's platform defaults for it: in mode nftables, node ports on the
 * primary address only.
 */
export function effectiveConfiguration(
  configuration: KubeProxyConfiguration,
  mode: BackendMode,
): KubeProxyConfiguration {
  const nodePortAddresses = nodePortEntries(configuration.nodePortAddresses, mode);
  return Object.freeze({ ...configuration, mode, nodePortAddresses });
}
