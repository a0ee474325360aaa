/**
 * Takes plans, keeps the layout in step with them, and has it written.
 *
 * @module
 */
import type { Clock } from "../../lib/os/clock.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import type { PlanChanges, ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { RefusedItems } from "../netfilter/refused_items.ts";
import { takeChanges } from "../netfilter/take_changes.ts";
import { claimsOf, type EntryId } from "./claims.ts";
import type { Entry } from "./entry.ts";
import { orderWords } from "./endpoint_orders.ts";
import { NftablesLayout } from "./layout.ts";
import type { NftRunner } from "../netfilter/nft/nft_runner.ts";
import type { NftablesRenderOptions } from "./render_options.ts";
import type { Slots } from "./slots.ts";
import { TableWriter } from "./table_writer.ts";
import { WriteFigures } from "./write_figures.ts";

/** What comes with a plan. */
interface PlanInput {
  readonly changes: PlanChanges;
  readonly options: NftablesRenderOptions;
}

/** The table of one family, wanted and applied. One call is in flight at most. */
export class WantedTable {
  readonly #clock: Clock;
  readonly #writer: TableWriter;
  readonly #refused = new RefusedItems();
  #layout: NftablesLayout | undefined;
  /** What the layout was made with. */
  #localTraffic: LocalTrafficDetector | undefined;
  #isPending = false;

  constructor(
    { clock, runner }: {
      readonly clock: Clock;
      readonly runner: Pick<NftRunner, "chains" | "read" | "write">;
    },
  ) {
    this.#clock = clock;
    this.#writer = new TableWriter({ clock, runner, refused: this.#refused });
  }

  /** Whether what the kernel holds is known. */
  get isKnown(): boolean {
    return this.#writer.isKnown;
  }

  /** Whether changes were taken that are not written yet. */
  get isPending(): boolean {
    return this.#isPending;
  }

  /** ServicePorts that have rules, or are to have them. */
  get serviceCount(): number {
    return this.#layout?.serviceCount ?? 0;
  }

  /** Transactions that failed, since the process began. */
  get failedWrites(): number {
    return this.#writer.failures;
  }

  /** Of these, those that only took away what was out of use. */
  get failedCleanups(): number {
    return this.#writer.failedCleanups;
  }

  /** ServicePorts that have no rules, and why. */
  get quarantined(): readonly Quarantined[] {
    return this.#layout?.quarantined ?? [];
  }

  /** What the kernel is known to hold for an entry. */
  applied(id: EntryId): Entry | undefined {
    return this.#writer.entry(id);
  }

  /** How the kernel is known to remember the endpoints of a ServicePort; `undefined` = it does not. */
  slots(plan: ServicePlan): Slots | undefined {
    const entries = claimsOf(plan).map((id) => this.applied(id));
    return entries.find((entry) => entry?.plan.key === plan.key && entry.slots)?.slots;
  }

  /** How endpoints are numbered where the plan does not tell; as {@linkcode orderWords}. */
  *orders(): Generator<void, readonly string[]> {
    return this.#layout ? yield* orderWords(this.#writer.lastEntries(), this.#layout) : [];
  }

  /** Takes what has changed; nothing is written. Costs what has changed. */
  async take(plan: ProxyPlan, { changes, options }: PlanInput): Promise<void> {
    this.#isPending = true;
    const { layout, isNew } = this.#layoutFor(plan, options);
    if (isNew || changes.shared) this.#refused.forgetAll();
    const keeper = { layout, refused: this.#refused, clock: this.#clock };
    await takeChanges(keeper, plan, { changes, isNew });
  }

  /** Writes what differs. Throws an NftError; then what the kernel holds is read next time. */
  async write(figures: WriteFigures): Promise<void> {
    const layout = this.#layout;
    if (layout === undefined) return;
    await this.#writer.write(layout, figures);
    this.#isPending = false;
    await this.#writer.tidy(layout, { all: false, figures });
  }

  /** Chains of ours that are missing in the kernel. */
  missingChains(): Promise<readonly string[]> {
    return this.#writer.missingChains();
  }

  /** Reads everything, writes what differs, and takes away what is out of use. */
  async verify(figures: WriteFigures): Promise<void> {
    const layout = this.#layout;
    if (layout === undefined) return;
    // Else the reading finds what fell out of use here, and it counts as changed by others.
    await this.#writer.tidy(layout, { all: true, figures: new WriteFigures() });
    this.#writer.forget();
    await this.#writer.write(layout, figures);
    await this.#writer.tidy(layout, { all: true, figures });
  }

  /** What all rules depend on may have changed: then they are laid out anew, and compared. */
  #layoutFor(
    { shared }: ProxyPlan,
    options: NftablesRenderOptions,
  ): { readonly layout: NftablesLayout; readonly isNew: boolean } {
    const current = this.#layout;
    const isNew = current === undefined || !deepEqual(current.options, options) ||
      !deepEqual(this.#localTraffic, shared.localTraffic);
    if (!isNew) return { layout: current, isNew };
    this.#writer.forgetRules();
    this.#layout = new NftablesLayout(shared, options);
    this.#localTraffic = shared.localTraffic;
    return { layout: this.#layout, isNew };
  }
}
