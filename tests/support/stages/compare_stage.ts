/**
 * A mode on the kernel of a network namespace: one backend that serves, as in a running process,
 * and idle ones that compare and repair.
 */
import { type BackendOptions, BACKENDS } from "../../../backends/mod.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { type CommandRunner, systemCommandRunner } from "../../../lib/os/command_runner.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import type { Backend, BackendMode } from "../../../lib/proxy/backend.ts";
import type { SyncReport } from "../../../lib/proxy/data_plane.ts";
import type { ProxyPlan, SharedPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { defaultConfiguration } from "../../../lib/config/configuration.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { Namespace } from "./netns.ts";
import { testPlanChanges, testProxyPlan } from "../builders/service_plans.ts";

/** The shared part of every plan, unless a sync gives another one. */
export const SHARED = {
  localTraffic: { kind: "byCidr" as const, cidr: parseCidr("10.0.0.0/8") },
  nodePortAddresses: [parseIpAddress("198.51.100.1")],
  serviceCidrs: [parseCidr("172.30.0.0/16")],
};

/** Longer than a test: damage stays until it is repaired here. */
const SYNC_PERIOD_MS = 3_600_000;

/** The node, and what serves it. */
export class CompareStage implements AsyncDisposable {
  /** The commands that backends ran, as on a command line. */
  readonly calls: string[] = [];
  readonly logger = new MemoryLogger();
  readonly drift: unknown[] = [];
  serving: Backend;
  readonly #watchMs: number | undefined;
  #plan: ProxyPlan | undefined;

  private constructor(readonly node: Namespace, readonly mode: BackendMode, watchMs?: number) {
    this.#watchMs = watchMs;
    this.serving = this.#create();
  }

  /** Makes it; the backend has started. With `watchMs` it looks after its rules so often. */
  static async create(
    mode: BackendMode,
    prepare: (node: Namespace) => Promise<void> = () => Promise.resolve(),
    watchMs?: number,
  ): Promise<CompareStage> {
    const node = await Namespace.create("compare");
    await prepare(node);
    const stage = new CompareStage(node, mode, watchMs);
    await stage.#start();
    return stage;
  }

  /** The plan that was synced last. */
  get plan(): ProxyPlan {
    if (this.#plan === undefined) throw new Error("Cannot tell the plan before the first sync");
    return this.#plan;
  }

  /** Brings the kernel to what these need. */
  sync(plans: readonly ServicePlan[], shared: Partial<SharedPlan> = {}): Promise<SyncReport> {
    const plan = testProxyPlan(plans, { shared: { ...SHARED, ...shared } });
    const changes = testPlanChanges(plan, this.#plan);
    this.#plan = plan;
    return this.serving.sync(plan, changes);
  }

  /** Another process serves from now on. */
  async restart(): Promise<void> {
    await this.serving[Symbol.asyncDispose]();
    this.serving = this.#create();
    this.#plan = undefined;
    await this.#start();
  }

  async #start(): Promise<void> {
    await this.serving.start();
    // Its own watch would repair the damage.
    if (this.#watchMs === undefined) await this.serving.drain(0);
  }

  /** A backend of another process, which knows the facts in a dump of the serving one. */
  another(options: Pick<BackendOptions, "facts"> = {}): Backend {
    const facts = this.serving.facts?.();
    return this.#create({ ...(facts && { facts }), ...options });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.serving[Symbol.asyncDispose]();
    await this.node[Symbol.asyncDispose]();
  }

  #create(options: Pick<BackendOptions, "facts"> = {}): Backend {
    const { name } = this.node;
    const commands: CommandRunner = {
      run: (program, args, given) => {
        this.calls.push([program, ...args].join(" "));
        return systemCommandRunner.run("ip", ["netns", "exec", name, program, ...args], given);
      },
    };
    const configuration = defaultConfiguration();
    const syncPeriod = this.#watchMs ?? SYNC_PERIOD_MS;
    return BACKENDS[this.mode]!({
      clock: systemClock,
      commands,
      logger: this.logger,
      network: systemNetwork,
      random: () => 0,
      onDrift: (figures) => this.drift.push(figures),
    }, {
      family: "IPv4",
      relay: {
        addressMode: "each",
        udpTimeoutMs: 1_000,
        maxConnectionsPerService: 10,
        stateDirectory: "",
        ipvsDrainTimeoutMs: 1_000,
      },
      iptables: { ...configuration.iptables, syncPeriod },
      nftables: { ...configuration.nftables, syncPeriod },
      ipvs: configuration.ipvs,
      ...options,
    });
  }
}
