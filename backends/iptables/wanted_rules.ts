/**
 * Takes plans, keeps the layout in step with them, and has it written.
 *
 * @module
 */
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import type { Clock } from "../../lib/os/clock.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { IptablesTable } from "../netfilter/iptables/iptables_objects.ts";
import type { IptablesRunner } from "../netfilter/iptables/iptables_runner.ts";
import { TREES } from "./base_chains.ts";
import { IptablesLayout } from "./layout.ts";
import { RefusedItems } from "../netfilter/refused_items.ts";
import { takeChanges } from "../netfilter/take_changes.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import type { RulesByTable } from "./rule_totals.ts";
import { RuleWriter } from "./rule_writer.ts";
import { ServiceRuleWriter, type ServiceRuleWriterDependencies } from "./service_rule_writer.ts";
import { WriteFigures } from "./write_figures.ts";

/** What the rules are written with. */
interface WantedRulesDependencies
  extends Pick<ServiceRuleWriterDependencies, "clock" | "recreateCounters"> {
  readonly runner: IptablesRunner;
}

/** What comes with a plan. */
interface PlanInput {
  readonly changes: PlanChanges;
  readonly options: IptablesRenderOptions;
}

/** The rules of one family, wanted and applied. One call is in flight at most. */
export class WantedRules {
  readonly #clock: Clock;
  readonly #writer: RuleWriter;
  readonly #services: ServiceRuleWriter;
  readonly #refused = new RefusedItems();
  #layout: IptablesLayout | undefined;
  /** What the layout was made with. */
  #localTraffic: LocalTrafficDetector | undefined;
  #isPending = false;

  constructor({ clock, runner, recreateCounters }: WantedRulesDependencies) {
    this.#clock = clock;
    this.#writer = new RuleWriter({ clock, runner });
    const writer = this.#writer;
    const refused = this.#refused;
    this.#services = new ServiceRuleWriter({ clock, writer, refused, recreateCounters });
  }

  /** Whether what the kernel holds is known. */
  get isKnown(): boolean {
    return this.#writer.isKnown;
  }

  /** Whether changes were taken that are not written yet. */
  get isPending(): boolean {
    return this.#isPending;
  }

  /** Restores that failed, since the process began. */
  get failedWrites(): number {
    return this.#writer.failures;
  }

  /** Rules of ours in the kernel, without jumps. */
  get totals(): RulesByTable {
    return this.#writer.totals;
  }

  /** Whether rules for Services were there when the tables were read: of an earlier run, or kube-proxy's. */
  get foundServices(): boolean {
    return this.#writer.found({ table: "nat", name: TREES.services.root });
  }

  /** Tables that nobody could read: what others change there goes unseen. */
  get unreadable(): readonly IptablesTable[] {
    return this.#writer.unreadable;
  }

  /** ServicePorts that have no rules, or not all, and why. */
  get quarantined(): readonly Quarantined[] {
    return this.#layout?.quarantined ?? [];
  }

  /** What is wanted; absent before the first plan. */
  get layout(): IptablesLayout | undefined {
    return this.#layout;
  }

  /** Which chains the trees have; see {@linkcode IptablesLayout.shape}. */
  get shape(): readonly string[] {
    return this.#layout?.shape ?? [];
  }

  /** Reads what the kernel holds. */
  read(): Promise<void> {
    return this.#writer.read(new WriteFigures());
  }

  /** Takes what has changed; nothing is written. Costs what has changed. */
  async take(plan: ProxyPlan, { changes, options }: PlanInput): Promise<void> {
    this.#isPending = true;
    const { layout, isNew } = this.#layoutFor(plan, options);
    const changed = (key: ServicePortKey) => this.#services.changed(key);
    const keeper = { layout, refused: this.#refused, clock: this.#clock, changed };
    await takeChanges(keeper, plan, { changes, isNew });
  }

  /** Writes what differs. Throws an IptablesError; then what the kernel holds is read next time. */
  async write(figures: WriteFigures): Promise<void> {
    if (this.#layout === undefined) return;
    await this.#services.write(this.#layout, figures);
    this.#isPending = false;
  }

  /** Reads everything and writes what differs; nothing before the first plan. */
  async verify(figures: WriteFigures): Promise<void> {
    if (this.#layout === undefined) return;
    this.#writer.forget();
    await this.write(figures);
  }

  /** What all rules depend on may have changed: then they are laid out anew, and compared. */
  #layoutFor(
    { shared }: ProxyPlan,
    options: IptablesRenderOptions,
  ): { readonly layout: IptablesLayout; readonly isNew: boolean } {
    const current = this.#layout;
    const isNew = current === undefined || !deepEqual(current.options, options) ||
      !deepEqual(this.#localTraffic, shared.localTraffic);
    if (!isNew) return { layout: current, isNew };
    if (current) this.#writer.forget();
    this.#layout = new IptablesLayout(shared, options);
    this.#refused.forgetAll();
    this.#localTraffic = shared.localTraffic;
    return { layout: this.#layout, isNew };
  }
}
