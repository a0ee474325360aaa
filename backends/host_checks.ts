import type { Clock } from "../lib/os/clock.ts";
import { CommandError, type CommandRunner } from "../lib/os/command_runner.ts";
import type { Network } from "../lib/os/network.ts";
import type { BackendMode } from "../lib/proxy/backend.ts";
import type { HostCheckOptions, HostChecks } from "../lib/proxy/host_checks.ts";
import type { ProbeResult } from "../lib/proxy/service_mode.ts";
import { probeIptablesMode } from "./iptables/probe.ts";
import { probeIpvsMode } from "./ipvs/probe.ts";
import { findForeignSoftware } from "./netfilter/foreign/find_foreign_software.ts";
import { removeKubeProxy, removeKubeRouterPolicies } from "./netfilter/foreign/remove_foreign.ts";
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
  const { noting, avoiding } = rememberHungTools(dependencies);
  return {
    probeMode: (mode, options = {}) => PROBES[mode]({ ...dependencies, commands: noting }, options),
    // Skips tools that hung while `doctor` tested the modes.
    findings: (options) => findForeignSoftware({ ...dependencies, commands: avoiding }, options),
    removeKubeProxy: (options) => removeKubeProxy(dependencies, options),
    removeKubeRouterPolicies: (options) => removeKubeRouterPolicies(dependencies, options),
  };
}

/** A repaired tool is used again without a restart of kube-relay. */
const FORGET_MS = 60_000;

/**
 * Remembers which programs ran into a time-out when they were started last. `noting` runs every command:
 * for trials, where a later command may have to clean up after an earlier one. `avoiding` skips a program
 * that hung within the last minute.
 */
export function rememberHungTools(
  { commands, clock }: { readonly commands: CommandRunner; readonly clock: Pick<Clock, "now"> },
): { readonly noting: CommandRunner; readonly avoiding: CommandRunner } {
  /** The time at which each program was given up. */
  const hung = new Map<string, number>();
  const run: CommandRunner["run"] = async (program, ...rest) => {
    try {
      const result = await commands.run(program, ...rest);
      hung.delete(program);
      return result;
    } catch (error) {
      if (error instanceof CommandError && error.kind === "timeout") {
        hung.set(program, clock.now());
      }
      throw error;
    }
  };
  const runUnlessHung: CommandRunner["run"] = (program, args, options) => {
    const since = hung.get(program);
    if (since === undefined || clock.now() - since >= FORGET_MS) return run(program, args, options);
    const message = `Cannot run '${program}': it hung a moment ago`;
    return Promise.reject(new CommandError(program, args, "failed", message));
  };
  return { noting: { run }, avoiding: { run: runUnlessHung } };
}
