/**
 * An iptables backend on a machine of its own, synced as `lib/app/service/syncer.ts` does: what a failed sync
 * should have done comes again with the next one.
 *
 * @module
 */
import { IptablesBackend } from "../../../backends/iptables/backend.ts";
import { renderIptables } from "../../../backends/iptables/render.ts";
import type { DriftFigures } from "../../../backends/netfilter/drift_watch.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { Backend } from "../../../lib/proxy/backend.ts";
import type { SyncReport } from "../../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../builders/iptables_render_options.ts";
import { testPlanChanges, testProxyPlan, testSharedPlan } from "../builders/service_plans.ts";
import { FakeClock, settle } from "../fakes/fake_clock.ts";
import { FakeIptables } from "../fakes/fake_iptables.ts";
import { FakeIptablesMachine } from "../fakes/fake_iptables_machine.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";

const SHARED = testSharedPlan({ localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") } });
/** Longer than any pause before a retry, and than the time for which a reading counts as fresh. */
const LONG_MS = 400_000;

/** Less than any pause between two looks for the canaries. */
const STEP_MS = 1_000;

/** The plan of these ServicePorts. */
export function iptablesPlan(services: readonly ServicePlan[]): ProxyPlan {
  return { ...testProxyPlan(services), shared: SHARED };
}

/** A kube-relay in iptables mode, without the rest of it. */
export class IptablesStage implements AsyncDisposable {
  readonly machine: FakeIptablesMachine;
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly drift: DriftFigures[] = [];
  #backend: Backend;
  /** The plan of the last sync that succeeded. */
  #synced: ProxyPlan | undefined;
  #quarantined: SyncReport["quarantined"] = [];

  constructor(machine = new FakeIptablesMachine()) {
    this.machine = machine;
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

  /** As {@linkcode sync}, after a start if none has succeeded; returns the failure. */
  async trySync(plan: ProxyPlan): Promise<unknown> {
    try {
      await this.sync(plan);
      return undefined;
    } catch (error) {
      return error;
    }
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
      for (let turn = 0; turn < 10; turn++) await settle();
    }
  }

  /** Lets all retries fall due. */
  async wait(): Promise<void> {
    await this.clock.advance(LONG_MS);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#backend[Symbol.asyncDispose]();
  }

  #create(): Backend {
    const { clock, logger, machine: { commands } } = this;
    const onDrift = (figures: DriftFigures) => void this.drift.push(figures);
    return new IptablesBackend({ clock, commands, logger, random: () => 0, onDrift }, {
      family: "IPv4",
      masqueradeBit: 14,
      localhostNodePorts: true,
      syncPeriodMs: 30_000,
    });
  }
}

const DISPATCH = / -[jg] KUBE-(VIP|EVIP|FVIP|ENP|NP|HP|HCP)-/;

/**
 * Returns the meaning of the rules, sorted: chains of the trees may differ with the history.
 * Includes unreachable chains, which must not exist.
 */
export function meaningOf(tool: FakeIptables): readonly string[] {
  const lines: string[] = [];
  for (const table of ["filter", "mangle", "nat"] as const) {
    const chains = tool.table(table);
    const targets = new Set(
      [...chains.values()].flat().map((rule) => / -[jg] (\S+)/.exec(` ${rule}`)?.[1]),
    );
    for (const [chain, rules] of chains) {
      if (/-\d+$/.test(chain) && !targets.has(chain)) lines.push(`${table} ${chain} is left over`);
      const place = /^KUBE-[A-Z]*VIP-|^KUBE-E?NP-|^KUBE-HC?P-/.test(chain) ? "a leaf" : chain;
      for (const rule of rules) {
        if (!DISPATCH.test(` ${rule}`)) lines.push(`${table} ${place} ${rule}`);
      }
    }
  }
  return lines.sort();
}

/** Returns the meaning of this plan's rules on a machine without any other rules. */
export function goldenMeaning(plan: ProxyPlan): readonly string[] {
  const tool = new FakeIptables();
  tool.restore([...renderIptables(plan, defaultRenderOptions("IPv4")).batch.text()].join(""));
  return meaningOf(tool);
}
