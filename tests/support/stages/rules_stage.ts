import type { DriftFigures } from "../../../backends/netfilter/rule_plane.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { BackendDependencies } from "../../../lib/app/dependencies.ts";
import type { Backend } from "../../../lib/proxy/backend.ts";
import type { SyncReport } from "../../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { testPlanChanges, testProxyPlan, testSharedPlan } from "../builders/service_plans.ts";
import { FakeClock, settle } from "../fakes/fake_clock.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";

const SHARED = testSharedPlan({ localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") } });
/** Less than any pause between two looks for own chains. */
const STEP_MS = 1_000;
/** Turns of the event loop in which the work of a step ends. */
const TURNS = 40;

/** The settings of a backend of rules. */
export const RULES_SETTINGS = { family: "IPv4", masqueradeBit: 14, syncPeriodMs: 30_000 } as const;

/** The plan of these ServicePorts. */
export function rulesPlan(services: readonly ServicePlan[]): ProxyPlan {
  return { ...testProxyPlan(services), shared: SHARED };
}

/**
 * A kube-relay in a mode of rules, without the rest of it: a backend on a machine of its own, synced
 * as a loop does. What a failed sync should have done comes again with the next one.
 */
export class RulesStage<Machine extends Pick<BackendDependencies, "commands">>
  implements AsyncDisposable {
  readonly machine: Machine;
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly drift: DriftFigures[] = [];
  readonly #create: () => Backend;
  #backend: Backend;
  /** The plan of the last sync that succeeded. */
  #synced: ProxyPlan | undefined;
  #quarantined: SyncReport["quarantined"] = [];

  constructor(machine: Machine, create: (dependencies: RulesStageEdges) => Backend) {
    this.machine = machine;
    const { clock, logger } = this;
    const onDrift = (figures: DriftFigures) => void this.drift.push(figures);
    this.#create = () =>
      create({ clock, logger, commands: machine.commands, random: () => 0, onDrift });
    this.#backend = this.#create();
  }

  get backend(): Backend {
    return this.#backend;
  }

  /** Brings the machine to the plan, or throws as the backend does. */
  async sync(plan: ProxyPlan): Promise<SyncReport> {
    const changes = testPlanChanges(plan, this.#synced);
    const retried = this.#quarantined.map(({ key }) => key).filter((key) => plan.services.has(key));
    const upserted = new Set([...changes.upserted, ...retried]);
    const report = await this.#backend.sync(plan, { ...changes, upserted });
    this.#synced = plan;
    this.#quarantined = report.quarantined;
    return report;
  }

  /** As {@linkcode sync}; returns the failure. */
  trySync(plan: ProxyPlan): Promise<unknown> {
    return this.sync(plan).then(() => undefined, (error: unknown) => error);
  }

  /** Another process takes over: nothing is known to it. */
  async restart(): Promise<void> {
    await this.#backend[Symbol.asyncDispose]();
    this.#synced = undefined;
    this.#quarantined = [];
    this.#backend = this.#create();
    await this.#backend.start();
  }

  /** Lets time pass, and lets work that begins meanwhile finish. */
  async pass(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += STEP_MS) {
      await this.clock.advance(STEP_MS);
      for (let turn = 0; turn < TURNS; turn++) await settle();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#backend[Symbol.asyncDispose]();
  }
}

type RulesStageEdges = Required<
  Pick<BackendDependencies, "clock" | "commands" | "logger" | "random" | "onDrift">
>;
