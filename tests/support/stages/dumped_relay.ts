/**
 * kube-relay in this process on a fake machine, with its dump, and the text of its rules in force.
 */
import { BACKENDS } from "../../../backends/mod.ts";
import { POLICY_BACKENDS } from "../../../backends/policy/mod.ts";
import { askControl, askControlText } from "../../../lib/tools/control/control_client.ts";
import type { ProgramDependencies } from "../../../lib/app/run/run_tools.ts";
import { runProxy } from "../../../lib/app/run/run_proxy.ts";
import { effectiveConfiguration } from "../../../lib/config/configuration.ts";
import { createLogger } from "../../../lib/log/create_logger.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import type { Backend, BackendMode } from "../../../lib/proxy/backend.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import { THIS_NODE } from "../builders/address_plan.ts";
import { eventually } from "../eventually.ts";
import { isSettled } from "./relay_process.ts";
import { testDependencies } from "../fakes/test_dependencies.ts";
import { configurationOf, ownFlags } from "../drivers/own_flags.ts";

/** The options of the start. */
export interface DumpedRelayOptions {
  readonly mode: BackendMode;
  readonly commands: CommandRunner;
  /** Flags of the command line; of health, metrics and the socket it has its own. */
  readonly flags: readonly string[];
  /** Addresses of the machine, besides 127.0.0.1. @default {none} */
  readonly addresses?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Longest time for the first sync. @default {10_000} */
  readonly deadlineMs?: number;
}

/** A running kube-relay of one family, IPv4. */
export class DumpedRelay implements AsyncDisposable {
  readonly #options: DumpedRelayOptions;
  readonly #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();
  #live: { readonly backend: Backend; readonly plan: ProxyPlan } | undefined;

  private constructor(readonly folder: string, options: DumpedRelayOptions) {
    this.#options = options;
  }

  /** Starts it; resolves when it has synced. */
  static async start(options: DumpedRelayOptions): Promise<DumpedRelay> {
    const relay = new DumpedRelay(await Deno.makeTempDir(), options);
    await relay.#start();
    return relay;
  }

  get controlSocket(): string {
    return `${this.folder}/control.sock`;
  }

  /** The answer to `/dump`. */
  async dump(): Promise<string> {
    return await askControlText(this.controlSocket, "/dump");
  }

  /** The rules of the plan that was synced last, by the backend that serves it. */
  text(): string {
    const { backend, plan } = this.#live!;
    return [...backend.render(plan)].join("");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    await Deno.remove(this.folder, { recursive: true });
  }

  async #start(): Promise<void> {
    const { mode, flags: given, env = {} } = this.#options;
    const configuration = await configurationOf([
      ...given,
      `--hostname-override=${THIS_NODE}`,
      "--address-mode=none",
      "--conntrack-max-per-core=0",
      "--drain-timeout=0s",
      `--proxy-mode=${mode}`,
      ...ownFlags(this.folder),
    ], { uid: 1000, env: (name) => env[name] });
    const dependencies = this.#dependencies(env);
    const proxy = effectiveConfiguration(configuration.proxy, mode);
    const run = { ...configuration, proxy, mode, families: ["IPv4"] as const };
    this.#running = runProxy(
      { ...dependencies, logger: createLogger({ format: "text", verbosity: 0, sink: () => {} }) },
      run,
      this.#stop.signal,
    );
    await Promise.race([this.#running, this.settled()]);
  }

  /** Waits until it has synced everything that it knows of. */
  async settled(): Promise<void> {
    await eventually("kube-relay has synced", async () => {
      const status = await askControl(this.controlSocket, "/status", { brief: "" }).catch(() =>
        undefined
      );
      return status !== undefined && isSettled(status);
    }, { deadlineMs: this.#options.deadlineMs ?? 60_000 });
  }

  #dependencies(env: Readonly<Record<string, string>>): ProgramDependencies {
    const { mode, commands, addresses = [] } = this.#options;
    const own = [
      { interfaceName: "lo", address: parseIpAddress("127.0.0.1") },
      ...addresses.map((text) => ({ interfaceName: "eth0", address: parseIpAddress(text) })),
    ];
    return testDependencies({
      network: { ...systemNetwork, interfaceAddresses: () => own },
      commands,
      backends: {
        [mode]: (...made: Parameters<NonNullable<typeof BACKENDS.iptables>>) =>
          this.#watched(BACKENDS[mode]!(...made)),
      },
      policyBackends: POLICY_BACKENDS,
      process: {
        ...{ pid: 4711, uid: 1000, hostname: "machine-a", kernelRelease: "6.12.0-test" },
        env: (name) => env[name],
      },
    });
  }

  /** Records the synced plans. */
  #watched(backend: Backend): Backend {
    const sync = backend.sync.bind(backend);
    backend.sync = (plan, changes) => {
      this.#live = { backend, plan };
      return sync(plan, changes);
    };
    return backend;
  }
}

/** What `render` prints, without the heading. */
export function withoutHeading(text: string): string {
  return text.replace(/^# kube-relay [^]*?\.\n/, "");
}
