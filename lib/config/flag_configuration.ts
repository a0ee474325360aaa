import type { KubeProxyConfiguration } from "./configuration.ts";
import { defaultConfiguration } from "./configuration_schema.ts";

/**
 * Returns the configuration that flags override. It is that of an empty file, except for the
 * shortest time between two syncs of IPVS: kube-proxy uses 1s with flags and 0s with a file.
 */
export function flagConfiguration(): KubeProxyConfiguration {
  const configuration = defaultConfiguration();
  return { ...configuration, ipvs: { ...configuration.ipvs, minSyncPeriod: 1_000 } };
}
