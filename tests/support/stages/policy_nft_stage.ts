/**
 * The nftables data plane of NetworkPolicy on its own machine, synced as its controller does:
 * changes of a failed sync are repeated with the next one.
 *
 * @module
 */
import { POLICY_BACKENDS } from "../../../backends/policy/mod.ts";
import { renderPolicies } from "../../../backends/policy/nftables/layout.ts";
import type { DriftFigures } from "../../../backends/netfilter/drift_watch.ts";
import type { PolicyPlane } from "../../../backends/policy/policy_plane.ts";
import type { SyncReport } from "../../../lib/engine/data_plane.ts";
import type { PolicyKey, PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { PolicyPlanner, type PolicyPlanOptions } from "../../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";
import { IPV4_PLAN } from "../builders/policy_objects.ts";
import { FakeClock, settle } from "../fakes/fake_clock.ts";
import { FakeNft, type FakeNftTable } from "../fakes/fake_nft.ts";
import { FakeNftMachine } from "../fakes/fake_nft_machine.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";

/** The table of a new machine after the rendered plan. */
export function renderedPolicyTable(plan: PolicyPlan): FakeNftTable {
  const tool = new FakeNft();
  tool.run([...renderPolicies(plan)].join(""));
  return tool.table(tool.tables[0]!);
}

/** All of a table that matters: an empty chain that nothing leads to is left out. */
export function policyTableMeaning(
  { chains, hooks, elements, declarations }: FakeNftTable,
): unknown {
  return {
    chains: new Map([...chains].filter(([, rules]) => rules.length > 0).sort()),
    hooks: new Map([...hooks].sort()),
    elements: new Map(
      [...elements].map(([name, values]) => [name, [...values].sort()] as const).sort(),
    ),
    declarations: new Map([...declarations].sort()),
  };
}

/** A data plane with its planner, and the machine. */
export class PolicyNftStage implements AsyncDisposable {
  readonly machine = new FakeNftMachine();
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly drift: DriftFigures[] = [];
  readonly state = new PolicyState();
  readonly planner: PolicyPlanner;
  dataPlane: PolicyPlane;

  private constructor(options: PolicyPlanOptions) {
    this.planner = new PolicyPlanner(this.state, options);
    this.dataPlane = this.#create();
  }

  static async create(options: Partial<PolicyPlanOptions> = {}): Promise<PolicyNftStage> {
    const stage = new PolicyNftStage({ ...IPV4_PLAN, ...options });
    await stage.dataPlane.start();
    return stage;
  }

  /** Plans what happened and brings the machine to it, or throws as the data plane does. */
  async sync(): Promise<SyncReport<PolicyKey>> {
    const changes = this.planner.update();
    try {
      return await this.dataPlane.sync(this.planner.plan, changes);
    } catch (error) {
      this.planner.forget();
      throw error;
    }
  }

  get table(): FakeNftTable {
    return this.machine.tool.table(this.machine.tool.tables[0]!);
  }

  get meaning(): unknown {
    return policyTableMeaning(this.table);
  }

  get golden(): unknown {
    return policyTableMeaning(renderedPolicyTable(this.planner.plan));
  }

  /** The input of the last write. */
  get lastText(): string {
    return this.machine.writes.at(-1)?.stdin ?? "";
  }

  /** Another process takes over: nothing is known to it. */
  async restart(): Promise<void> {
    await this.dataPlane[Symbol.asyncDispose]();
    this.dataPlane = this.#create();
    await this.dataPlane.start();
    this.planner.setOptions(this.planner.plan);
  }

  /** Has everything compared now. */
  async recheck(): Promise<void> {
    this.dataPlane.recheck();
    for (let turn = 0; turn < 10; turn++) await settle();
    // It has its turn after the check.
    await this.dataPlane.compare(this.planner.plan);
    for (let turn = 0; turn < 10; turn++) await settle();
  }

  /** Lets time pass, and lets work that begins meanwhile finish. */
  async pass(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += 1_000) {
      await this.clock.advance(1_000);
      for (let turn = 0; turn < 40; turn++) await settle();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.dataPlane[Symbol.asyncDispose]();
  }

  #create(): PolicyPlane {
    const { clock, logger, machine: { commands } } = this;
    const onDrift = (figures: DriftFigures) => void this.drift.push(figures);
    const family = this.planner.plan.family;
    return POLICY_BACKENDS.nftables({ clock, commands, logger, random: () => 0, onDrift }, {
      family,
      syncPeriodMs: 30_000,
    });
  }
}
