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
  const { noting, avoiding } = new HungTools(dependencies);
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

/** Remembers which programs ran into a time-out when they were started last. */
export class HungTools {
  readonly #commands: CommandRunner;
  readonly #clock: Pick<Clock, "now">;
  /** The time at which each program was given up. */
  readonly #hung = new Map<string, number>();

  constructor(
    { commands, clock }: { readonly commands: CommandRunner; readonly clock: Pick<Clock, "now"> },
  ) {
    this.#commands = commands;
    this.#clock = clock;
  }

  /**
   * Runs every command. For trials, where a later command may have to clean up after an earlier
   * one.
   */
  get noting(): CommandRunner {
    return { run: (...command) => this.#run(...command) };
  }

  /** As {@linkcode noting}, but skips a program that hung within the last minute. */
  get avoiding(): CommandRunner {
    return {
      run: (program, args, options) => {
        const since = this.#hung.get(program);
        if (since === undefined || this.#clock.now() - since >= FORGET_MS) {
          return this.#run(program, args, options);
        }
        const message = `Cannot run '${program}': it hung a moment ago`;
        return Promise.reject(new CommandError(program, args, "failed", message));
      },
    };
  }

  async #run(...[program, ...rest]: Parameters<CommandRunner["run"]>) {
    try {
      const result = await this.#commands.run(program, ...rest);
      this.#hung.delete(program);
      return result;
    } catch (error) {
      if (error instanceof CommandError && error.kind === "timeout") {
        this.#hung.set(program, this.#clock.now());
      }
      throw error;
    }
  }
}
