/**
 * What no flag and no file come to.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "./configuration.ts";
import { defaultConfiguration } from "./configuration_schema.ts";

/**
 * The configuration that flags are written over. It is that of an empty file, but for the shortest
 * time between two syncs of IPVS: kube-proxy has 1s for those who give flags, 0s for a file.
 */
export function flagConfiguration(): KubeProxyConfiguration {
  const configuration = defaultConfiguration();
  return { ...configuration, ipvs: { ...configuration.ipvs, minSyncPeriod: 1_000 } };
}
