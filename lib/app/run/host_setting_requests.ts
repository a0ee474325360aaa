/**
 * Collects the kernel settings that a run requests: first those of connection tracking, then those of
 * the mode and of NetworkPolicy.
 *
 * @module
 */
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { CommandError, type CommandRunner } from "../../os/command_runner.ts";
import type { Backend, BackendMode } from "../../proxy/backend.ts";
import { conntrackSettings } from "../../proxy/conntrack_settings.ts";
import type { HostSettingRequest } from "../../proxy/host_setting.ts";
import { configuredNodePorts } from "./plan_settings.ts";

const PURPOSE = "apply NetworkPolicies to traffic between pods on one bridge of this node";

/**
 * The kernel settings that NetworkPolicy needs if pods are ports of a bridge. Without them, traffic
 * between such pods bypasses all rules of iptables and nftables.
 *
 * The settings exist if the module br_netfilter is loaded. In spite of their names, they also apply
 * to nftables. Every run sets both, because a pod may have both families.
 */
export const BRIDGE_SETTINGS: readonly HostSettingRequest[] = [
  { name: "net.bridge.bridge-nf-call-iptables", value: "1", purpose: PURPOSE },
  { name: "net.bridge.bridge-nf-call-ip6tables", value: "1", purpose: PURPOSE },
];

/** The part of a backend that requests settings. */
export type RequestingBackend = Pick<Backend, "family" | "usesConntrack" | "hostSettings">;

interface RequestOptions {
  readonly proxy: Pick<
    KubeProxyConfiguration,
    "conntrack" | "nodePortAddresses" | "networkPolicy"
  >;
  readonly mode: BackendMode;
  readonly backends: readonly RequestingBackend[];
}

/** Returns the requests of the mode. */
export function modeSettingRequests(
  { proxy, mode, backends }: RequestOptions,
): readonly HostSettingRequest[] {
  return backends.flatMap((backend) =>
    backend.hostSettings(configuredNodePorts(proxy, { mode, family: backend.family }))
  );
}

/**
 * Returns the requests in kube-proxy's order. A mode without connection tracking requests nothing for
 * the kernel's table: an unprivileged process would only be refused.
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
  // Counting processors starts a process; only the size of the table needs it.
  const cpus = conntrack.maxPerCore > 0 ? await cpuCount(commands) : 0;
  return [...conntrackSettings(conntrack, cpus), ...ofBackends];
}

/**
 * Returns the number of CPUs of the machine. `navigator.hardwareConcurrency` is only used if
 * `nproc` is missing: it depends on the affinity and CPU quota of this process, and kernel tables
 * must not shrink because a container has half a core.
 */
export async function cpuCount(commands: CommandRunner): Promise<number> {
  try {
    const { code, stdout } = await commands.run("nproc", ["--all"]);
    const count = Number(stdout.trim());
    if (code === 0 && Number.isInteger(count) && count > 0) return count;
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
  }
  return navigator.hardwareConcurrency;
}
