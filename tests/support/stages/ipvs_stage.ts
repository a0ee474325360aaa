import type { DriftFigures } from "../../../backends/netfilter/rule_plane.ts";
import { IpvsBackend, type IpvsBackendOptions } from "../../../backends/ipvs/backend.ts";
import type { Backend } from "../../../lib/proxy/backend.ts";
import type { SyncReport } from "../../../lib/proxy/data_plane.ts";
import {
  mergePlanChanges,
  type PlanChanges,
  type ProxyPlan,
} from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { FakeClock, settle } from "../fakes/fake_clock.ts";
import { FakeIpvsMachine } from "../fakes/fake_ipvs_machine.ts";
import { FakeNetwork } from "../fakes/fake_network.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { testPlanChanges, testProxyPlan, testSharedPlan } from "../builders/service_plans.ts";

/** kube-proxy's defaults, with time for connections of removed endpoints to end. */
export const IPVS_SETTINGS: Omit<IpvsBackendOptions, "family"> = {
  masqueradeBit: 14,
  ipvs: {
    ...{ scheduler: "rr", excludeCIDRs: [], strictARP: false, syncPeriod: 30_000 },
    ...{ tcpTimeout: 0, tcpFinTimeout: 0, udpTimeout: 0 },
  },
  drainTimeoutMs: 900_000,
};

const SHARED = testSharedPlan();

/** A plan of these ServicePorts; the shared part is always the same. */
export function ipvsPlanOf(...services: readonly ServicePlan[]): ProxyPlan {
  return { ...testProxyPlan(services), shared: SHARED };
}

/** A backend on a machine of its own, synced as a loop does. */
export class IpvsStage implements AsyncDisposable {
  readonly machine: FakeIpvsMachine;
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly backend: Backend;
  readonly drift: DriftFigures[] = [];
  #planned: ProxyPlan | undefined;
  /** Those of syncs that failed among them. */
  #changes: PlanChanges | undefined;

  constructor(
    machine = new FakeIpvsMachine(),
    options: Partial<IpvsBackendOptions> = {},
  ) {
    this.machine = machine;
    this.backend = new IpvsBackend({
      clock: this.clock,
      commands: machine.commands,
      logger: this.logger,
      network: Object.assign(new FakeNetwork(), {
        interfaceAddresses: () => machine.interfaceAddresses,
      }),
      random: () => 0,
      onDrift: (figures) => void this.drift.push(figures),
    }, { ...IPVS_SETTINGS, family: "IPv4", ...options });
  }

  /** One that is ready for its first sync. */
  static async started(machine?: FakeIpvsMachine): Promise<IpvsStage> {
    const stage = new IpvsStage(machine);
    await stage.backend.start();
    return stage;
  }

  /** Syncs; `retried` are looked at once more, as those in quarantine are. */
  async sync(
    plan: ProxyPlan,
    { retried = [] }: { readonly retried?: readonly ServicePlan[] } = {},
  ): Promise<SyncReport> {
    const more = testPlanChanges(plan, this.#planned);
    const changes = this.#changes ? mergePlanChanges(this.#changes, more) : more;
    this.#planned = plan;
    this.#changes = changes;
    const keys = [...changes.upserted, ...retried.map(({ key }) => key)];
    const report = await this.backend.sync(plan, { ...changes, upserted: new Set(keys) });
    this.#changes = undefined;
    return report;
  }

  /** Programs that write, run by an action. */
  async writesOf(action: () => Promise<unknown>): Promise<string[]> {
    const { calls } = this.machine.commands;
    const before = calls.length;
    await action();
    return calls.slice(before).filter(({ stdin }) => stdin !== "").map(({ program }) => program);
  }

  /** Lets time pass, and lets work that begins meanwhile finish. */
  async pass(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += 1_000) {
      await this.clock.advance(1_000);
      for (let turn = 0; turn < 20; turn++) await settle();
    }
  }

  /** Of a real server, wherever it is. */
  weight(endpoint: string): number | undefined {
    const { table } = this.machine.kernel;
    return table.getServers().flatMap(({ key }) => table.getReals(key))
      .find(({ key }) => key === endpoint)?.weight;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.backend[Symbol.asyncDispose]();
  }
}

/** Runs on one machine, one after the other, each with a clock of its own. */
export class IpvsRuns {
  readonly machine = new FakeIpvsMachine();

  /** A run until it is stopped. */
  async run(
    action: (stage: IpvsStage) => Promise<void>,
    options: Partial<IpvsBackendOptions> = {},
  ): Promise<void> {
    await using stage = new IpvsStage(this.machine, options);
    await stage.backend.start();
    await action(stage);
  }
}
