/**
 * All that a run requests of the machine's settings: for connection tracking first, then the mode's own,
 * then those of NetworkPolicy.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import { cpuCount } from "../../os/cpu_count.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import { conntrackSettings } from "../../proxy/conntrack_settings.ts";
import type { HostSettingRequest } from "../../proxy/host_setting.ts";
import { BRIDGE_SETTINGS } from "./bridge_settings.ts";
import { configuredNodePorts } from "./plan_settings.ts";

/** What is asked of the backends. */
export type RequestingBackend = Pick<Backend, "family" | "usesConntrack" | "hostSettings">;

/** By what the requests are made. */
interface RequestOptions {
  readonly proxy: Pick<
    KubeProxyConfiguration,
    "conntrack" | "nodePortAddresses" | "networkPolicy"
  >;
  readonly mode: BackendMode;
  readonly backends: readonly RequestingBackend[];
}

/** What the mode requests. */
export function modeSettingRequests(
  { proxy, mode, backends }: RequestOptions,
): readonly HostSettingRequest[] {
  return backends.flatMap((backend) =>
    backend.hostSettings(configuredNodePorts(proxy, { mode, family: backend.family }))
  );
}

/**
 * The requests in upstream's order. A mode without connection tracking has none of the kernel's
 * table: on such a host an unprivileged process would only be refused.
 */
export async function hostSettingRequests(
  { commands }: { readonly commands: CommandRunner },
  options: RequestOptions,
): Promise<readonly HostSettingRequest[]> {
  const { proxy: { conntrack, networkPolicy }, backends } = options;
  const ofBackends = [
    ...modeSettingRequests(options),
    ...(networkPolicy.enabled ? BRIDGE_SETTINGS : []),
  ];
  if (!backends.some(({ usesConntrack }) => usesConntrack)) return ofBackends;
  // Counting starts a process, which only the size of the table is worth.
  const cpus = conntrack.maxPerCore > 0 ? await cpuCount(commands) : 0;
  return [...conntrackSettings(conntrack, cpus), ...ofBackends];
}
