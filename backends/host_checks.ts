import type { Clock } from "../lib/os/clock.ts";
import type { CommandRunner } from "../lib/os/command_runner.ts";
import type { Network } from "../lib/os/network.ts";
import type { BackendMode } from "../lib/proxy/backend.ts";
import type { ProbeResult } from "../lib/proxy/service_mode.ts";
import type { HostCheckOptions, HostChecks } from "../lib/proxy/host_checks.ts";
import { probeIptablesMode } from "./iptables/probe.ts";
import { probeIpvsMode } from "./ipvs/probe.ts";
import {
  findingsNextToMode,
  removeKubeProxyNextToMode,
} from "./netfilter/foreign/find_foreign_software.ts";
import { removeKubeRouterPolicies } from "./netfilter/foreign/remove_kube_router_policies.ts";
import { HungTools } from "./netfilter/probe/hung_tools.ts";
import { probeNftablesMode } from "./nftables/probe.ts";

interface HostCheckDependencies {
  readonly clock: Clock;
  readonly network: Network;
  readonly commands: CommandRunner;
  /** The user of this process; `undefined` = unknown. */
  readonly uid: number | undefined;
  /** As `uname -r` prints it. */
  readonly kernelRelease: string;
  readonly env: (name: string) => string | undefined;
}

type Probe = (
  dependencies: HostCheckDependencies,
  options: HostCheckOptions,
) => Promise<readonly ProbeResult[]>;

const PROBES: Readonly<Record<BackendMode, Probe>> = {
  iptables: probeIptablesMode,
  ipvs: probeIpvsMode,
  nftables: probeNftablesMode,
  // It needs only sockets; its backend reports how addresses become local.
  userspace: () => Promise.resolve([]),
};

/** Creates the checks of this machine. Runs nothing before a check is called. */
export function createHostChecks(dependencies: HostCheckDependencies): HostChecks {
  const { noting, avoiding } = new HungTools(dependencies);
  return {
    probeMode: (mode, options = {}) => PROBES[mode]({ ...dependencies, commands: noting }, options),
    // Skips tools that hung while `doctor` tested the modes.
    findings: (options) => findingsNextToMode({ ...dependencies, commands: avoiding }, options),
    removeKubeProxy: (options) => removeKubeProxyNextToMode(dependencies, options),
    removeKubeRouterPolicies: (options) => removeKubeRouterPolicies(dependencies, options),
  };
}
