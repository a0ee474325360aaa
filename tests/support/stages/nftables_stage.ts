/**
 * An nftables backend on a machine of its own, synced as `lib/app/service/syncer.ts` does: what a failed sync
 * should have done comes again with the next one.
 *
 * @module
 */
import type { DriftFigures } from "../../../backends/netfilter/drift_watch.ts";
import { NftablesBackend } from "../../../backends/nftables/backend.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { Backend } from "../../../lib/proxy/backend.ts";
import type { SyncReport } from "../../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../builders/nftables_render_options.ts";
import { testPlanChanges, testProxyPlan, testSharedPlan } from "../builders/service_plans.ts";
import { FakeClock, settle } from "../fakes/fake_clock.ts";
import { FakeNftMachine } from "../fakes/fake_nft_machine.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { freshNftTable, nftMeaning } from "../texts/nft_meaning.ts";

const OPTIONS = defaultRenderOptions("IPv4");
const SHARED = testSharedPlan({ localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") } });
/** Longer than any pause before a retry. */
const LONG_MS = 400_000;
/** Less than any pause between two looks for the chains. */
const STEP_MS = 1_000;

/** The plan of these ServicePorts. */
export function nftablesPlan(services: readonly ServicePlan[]): ProxyPlan {
  return { ...testProxyPlan(services), shared: SHARED };
}

/** Returns the relevant content of a new machine's table for this plan. */
export function goldenNftMeaning(plan: ProxyPlan): unknown {
  return nftMeaning(freshNftTable(plan, OPTIONS), OPTIONS);
}

/** A kube-relay in nftables mode, without the rest of it. */
export class NftablesStage implements AsyncDisposable {
  readonly machine = new FakeNftMachine();
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly drift: DriftFigures[] = [];
  #backend: Backend;
  /** The plan of the last sync that succeeded. */
  #synced: ProxyPlan | undefined;
  #quarantined: SyncReport["quarantined"] = [];

  constructor() {
    this.#backend = this.#create();
  }

  get backend(): Backend {
    return this.#backend;
  }

  /** The relevant content of the table. */
  get meaning(): unknown {
    return nftMeaning(this.machine.tool.table("ip kube-relay"), OPTIONS);
  }

  /** Warnings so far. */
  get warnings(): readonly string[] {
    return this.logger.lines.filter(({ level }) => level === "warn").map(({ message }) => message);
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
      for (let turn = 0; turn < 40; turn++) await settle();
    }
  }

  /** Lets all retries fall due. */
  async wait(): Promise<void> {
    await this.pass(LONG_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#backend[Symbol.asyncDispose]();
  }

  #create(): Backend {
    const { clock, logger, machine: { commands } } = this;
    const onDrift = (figures: DriftFigures) => void this.drift.push(figures);
    return new NftablesBackend({ clock, commands, logger, random: () => 0, onDrift }, {
      family: "IPv4",
      masqueradeBit: 14,
      syncPeriodMs: 30_000,
    });
  }
}
