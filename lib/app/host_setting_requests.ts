/**
 * All that a run requests of the machine's settings: for connection tracking first, then the mode's own.
 *
 * @module
 */
import type { CommandRunner } from "../os/command_runner.ts";
import { cpuCount } from "../os/cpu_count.ts";
import type { Backend } from "../proxy/backend.ts";
import { type ConntrackLimits, conntrackSettings } from "../proxy/conntrack_settings.ts";
import type { HostSettingRequest } from "../proxy/host_setting.ts";

/** What is asked of the backends. */
export type RequestingBackend = Pick<Backend, "usesConntrack" | "hostSettings">;

/**
 * The requests in upstream's order. A mode without connection tracking has none of the kernel's
 * table: on such a host an unprivileged process would only be refused.
 */
export async function hostSettingRequests(
  { commands }: { readonly commands: CommandRunner },
  { conntrack, backends }: {
    readonly conntrack: ConntrackLimits;
    readonly backends: readonly RequestingBackend[];
  },
): Promise<readonly HostSettingRequest[]> {
  const ofBackends = backends.flatMap((backend) => backend.hostSettings?.() ?? []);
  if (!backends.some(({ usesConntrack }) => usesConntrack)) return ofBackends;
  // Counting starts a process, which only the size of the table is worth.
  const cpus = conntrack.maxPerCore > 0 ? await cpuCount(commands) : 0;
  return [...conntrackSettings(conntrack, cpus), ...ofBackends];
}
