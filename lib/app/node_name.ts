/**
 * The name of the own Node.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../config/configuration.ts";
import type { ProcessInfo } from "./dependencies.ts";

/** What was given by `hostnameOverride`, else the machine's name as the kubelet has it: in small letters. */
export function nodeNameOf(
  { hostnameOverride }: Pick<KubeProxyConfiguration, "hostnameOverride">,
  { hostname }: Pick<ProcessInfo, "hostname">,
): string {
  return hostnameOverride || hostname.trim().toLowerCase();
}
