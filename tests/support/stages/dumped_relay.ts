/**
 * kube-relay in this process on a fake machine, with its dump, and the text of its rules in force.
 */
import { BACKENDS } from "../../../backends/mod.ts";
import { POLICY_BACKENDS } from "../../../backends/policy/mod.ts";
import { askControlText } from "../../../lib/tools/control/control_client.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { CommandRunner } from "../../../lib/os/command_runner.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import type { Backend, BackendMode } from "../../../lib/proxy/backend.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import { THIS_NODE } from "../builders/address_plan.ts";
import { InProcessRelay } from "./in_process_relay.ts";
import { isSettled } from "./relay_process.ts";
import { testDependencies } from "../fakes/test_dependencies.ts";

/** The options of the start. */
export interface DumpedRelayOptions {
  readonly mode: BackendMode;
  readonly commands: CommandRunner;
  /** Flags of the command line; of health, metrics and the socket it has its own. */
  readonly flags: readonly string[];
  /** Addresses of the machine, besides 127.0.0.1. @default {none} */
  readonly addresses?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** A running kube-relay of one family, IPv4. */
export class DumpedRelay extends InProcessRelay {
  #live: { readonly backend: Backend; readonly plan: ProxyPlan } | undefined;

  /** Starts it; resolves when it has synced. */
  static async start(options: DumpedRelayOptions): Promise<DumpedRelay> {
    const relay = new DumpedRelay();
    await relay.#start(options);
    return relay;
  }

  /** The answer to `/dump`. */
  async dump(): Promise<string> {
    return await askControlText(this.socket, "/dump");
  }

  /** The rules of the plan that was synced last, by the backend that serves it. */
  text(): string {
    const { backend, plan } = this.#live!;
    return [...backend.render(plan)].join("");
  }

  async #start(
    { mode, flags, commands, addresses = [], env = {} }: DumpedRelayOptions,
  ): Promise<void> {
    const own = [
      { interfaceName: "lo", address: parseIpAddress("127.0.0.1") },
      ...addresses.map((text) => ({ interfaceName: "eth0", address: parseIpAddress(text) })),
    ];
    const dependencies = testDependencies({
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
    const fixed = [
      `--hostname-override=${THIS_NODE}`,
      "--drain-timeout=0s",
      `--proxy-mode=${mode}`,
    ];
    const isUp = () => this.#isSettled();
    await this.run(dependencies, [...flags, ...fixed], { mode, families: ["IPv4"], env, isUp });
  }

  /** Waits until it has synced everything that it knows of. */
  async settled(): Promise<void> {
    await this.until("kube-relay has synced", () => this.#isSettled());
  }

  async #isSettled(): Promise<boolean> {
    const status = await this.status({ brief: "" }).catch(() => undefined);
    return status !== undefined && isSettled(status);
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
