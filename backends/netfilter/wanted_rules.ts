import { SyncFailure } from "../../lib/engine/sync_failure.ts";
import { messageOf } from "../../lib/log/message_of.ts";
import type { Clock } from "../../lib/os/clock.ts";
import { forEachInSlices, TimeSlice, urgent } from "../../lib/os/time_slice.ts";
import type { Quarantined, SyncReport } from "../../lib/proxy/data_plane.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import type { PlanChanges, ProxyPlan, SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { refusedByKey, refusedItem, type RefusedItems } from "./refused_items.ts";

/** The wanted objects of a mode, by ServicePort. */
interface RuleLayout<Options> {
  readonly options: Options;
  /** ServicePorts that have no rules, or not all, and why. */
  readonly quarantined: readonly Quarantined[];
  /** Lays out a ServicePort by a plan, and takes it out of quarantine. */
  set(plan: ServicePlan): void;
  delete(key: ServicePortKey): void;
  /** Leaves a ServicePort out, until it is set again. */
  quarantine(item: Quarantined, plan: ServicePlan): void;
  /** Returns why a ServicePort can't be laid out. @default {it can} */
  obstacle?(plan: ServicePlan): string | undefined;
  /** @default {nothing else than what every rule depends on is used} */
  setShared?(shared: SharedPlan): void;
}

/** Brings a layout into the kernel. */
interface LayoutWriter<Layout, Figures> {
  /**
   * Whether the content of the kernel is known; otherwise a write reads and compares everything.
   */
  readonly isKnown: boolean;
  /** Writes that failed, since the process began. */
  readonly failures: number;
  /** The rules of a new layout may all differ. */
  forgetRules(): void;
  /** Writes the difference. After a failure the kernel is read again. */
  write(layout: Layout, figures: Figures): Promise<void>;
  /** Reads everything and writes the difference. */
  verify(layout: Layout, figures: Figures): Promise<void>;
}

/** The parts of {@linkcode WantedRules}. */
interface WantedRulesDependencies<Layout, Options, Figures> {
  readonly clock: Clock;
  readonly refused: RefusedItems;
  readonly writer: LayoutWriter<Layout, Figures>;
  readonly createLayout: (shared: SharedPlan, options: Options) => Layout;
  /** Whether a layout was made with these. @default {the options and the detector are the same} */
  readonly fits?: (layout: Layout, shared: SharedPlan, options: Options) => boolean;
}

/** The changes of a plan. */
interface WantedChanges<Options> {
  readonly changes: PlanChanges;
  readonly options: Options;
}

/** The rules of one family, wanted and applied. One call is in flight at most. */
export class WantedRules<Layout extends RuleLayout<Options>, Options, Figures> {
  readonly #dependencies: WantedRulesDependencies<Layout, Options, Figures>;
  #plan: ProxyPlan | undefined;
  #layout: Layout | undefined;
  /** The detector that the layout was made with. */
  #localTraffic: SharedPlan["localTraffic"] | undefined;
  #isPending = false;
  #failedPartialWrites = 0;

  constructor(dependencies: WantedRulesDependencies<Layout, Options, Figures>) {
    this.#dependencies = dependencies;
  }

  /** The plan of the last sync, whether it succeeded or not. */
  get plan(): ProxyPlan | undefined {
    return this.#plan;
  }

  /** Absent before the first plan. */
  get layout(): Layout | undefined {
    return this.#layout;
  }

  get isKnown(): boolean {
    return this.#dependencies.writer.isKnown;
  }

  /** Whether changes were taken that are not written yet. */
  get isPending(): boolean {
    return this.#isPending;
  }

  /** Writes that failed, since the process began. */
  get failedWrites(): number {
    return this.#dependencies.writer.failures;
  }

  /** The failed writes of syncs that wrote only changes. */
  get failedPartialWrites(): number {
    return this.#failedPartialWrites;
  }

  /** ServicePorts that have no rules, or not all, and why. */
  get quarantined(): readonly Quarantined[] {
    return this.#layout?.quarantined ?? [];
  }

  /** Takes and writes the changes of a plan, then runs `afterwards`. Throws a {@linkcode SyncFailure}. */
  async sync(
    plan: ProxyPlan,
    { figures, afterwards, ...wanted }: WantedChanges<Options> & {
      readonly figures: Figures;
      readonly afterwards?: () => Promise<void>;
    },
  ): Promise<Pick<SyncReport, "full" | "services">> {
    const { changes } = wanted;
    this.#plan = plan;
    let full = changes.everything || !this.isKnown;
    const failedBefore = this.failedWrites;
    try {
      await this.take(plan, wanted);
      // Other options change all rules, so the applied state is treated as unknown.
      full ||= !this.isKnown;
      await this.write(figures);
      await afterwards?.();
    } catch (cause) {
      throw new SyncFailure(messageOf(cause), { full, cause });
    } finally {
      if (!full) this.#failedPartialWrites += this.failedWrites - failedBefore;
    }
    return { full, services: changes.upserted.size + changes.removed.size };
  }

  /**
   * Updates the layout to a plan without writing. A ServicePort that the kernel refused is left out
   * until its retry. The cost depends on the changes.
   */
  async take(plan: ProxyPlan, { changes, options }: WantedChanges<Options>): Promise<void> {
    const { clock, refused } = this.#dependencies;
    this.#isPending = true;
    const { layout, isNew } = this.#layoutFor(plan.shared, options);
    if (isNew || changes.shared) refused.forgetAll();
    if (!isNew && changes.shared) layout.setShared?.(plan.shared);
    for (const key of changes.removed.keys()) {
      layout.delete(key);
      refused.forget(key);
    }
    const slice = new TimeSlice(urgent(clock));
    for (const key of isNew ? plan.services.keys() : changes.upserted) {
      const turn = slice.pause();
      if (turn) await turn;
      const service = plan.services.get(key);
      if (service === undefined) continue;
      const now = clock.now();
      const obstacle = layout.obstacle?.(service);
      const refusal = refused.waitingFor(service, now) ??
        (obstacle === undefined ? undefined : refused.refuse(service, { reason: obstacle, now }));
      if (refusal === undefined) layout.set(service);
      else layout.quarantine(refusedItem(clock, key, refusal), service);
    }
  }

  /** Writes the difference; nothing before the first plan. Throws the error of the writer. */
  async write(figures: Figures): Promise<void> {
    if (this.#layout === undefined) return;
    await this.#dependencies.writer.write(this.#layout, figures);
    this.#isPending = false;
  }

  /** Reads everything and writes the difference; nothing before the first plan. */
  async verify(figures: Figures): Promise<void> {
    if (this.#layout === undefined) return;
    await this.#dependencies.writer.verify(this.#layout, figures);
    this.#isPending = false;
  }

  /** If something changed that all rules depend on, the layout is made from scratch. */
  #layoutFor(
    shared: SharedPlan,
    options: Options,
  ): { readonly layout: Layout; readonly isNew: boolean } {
    const current = this.#layout;
    const { createLayout, fits, writer } = this.#dependencies;
    const isSame = current !== undefined && (fits?.(current, shared, options) ??
      (deepEqual(current.options, options) &&
        deepEqual(this.#localTraffic, shared.localTraffic)));
    if (isSame) return { layout: current, isNew: false };
    if (current) writer.forgetRules();
    this.#layout = createLayout(shared, options);
    this.#localTraffic = shared.localTraffic;
    return { layout: this.#layout, isNew: true };
  }
}

/** The layout that {@linkcode fillLayout} fills with the ServicePorts of a plan. */
interface FilledLayout {
  set(service: ServicePlan): void;
  quarantine(item: Quarantined, service: ServicePlan): void;
}

/** Lays out a whole plan, except for the items that the kernel refused in the serving process. */
export async function fillLayout(
  layout: FilledLayout,
  { services }: Pick<ProxyPlan, "services">,
  { clock, quarantined }: {
    readonly clock: Clock;
    readonly quarantined: readonly Quarantined[] | undefined;
  },
): Promise<void> {
  const refused = refusedByKey(quarantined);
  await forEachInSlices(clock, services.values(), (service) => {
    const item = refused.get(service.key);
    if (item) layout.quarantine(item, service);
    else layout.set(service);
  });
}
