import type { Clock } from "../../lib/os/clock.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { IptablesError } from "../netfilter/iptables/restore_error.ts";
import { chainKey } from "./chain_ref.ts";
import type { IptablesLayout } from "./layout.ts";
import { refusedItem, type RefusedItems } from "../netfilter/refused_items.ts";
import type { WantedRules } from "../netfilter/wanted_rules.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import type { RuleWriter } from "./rule_writer.ts";
import type { WriteFigures } from "./write_figures.ts";

/** The rules of iptables mode. */
export type IptablesRules = WantedRules<IptablesLayout, IptablesRenderOptions, WriteFigures>;

/** The parts of a {@linkcode ServiceRuleWriter}. */
export interface ServiceRuleWriterDependencies {
  readonly clock: Clock;
  readonly writer: RuleWriter;
  readonly refused: RefusedItems;
  /** Creates packet counters that another program deleted; resolves to whether they exist now. */
  readonly recreateCounters: () => Promise<boolean>;
}

/** Number of refused restores in one sync after which the remaining rules are bisected. */
const MAX_NAMED = 8;
/** Maximum number of restores in a search; the remaining suspects are quarantined together. */
const MAX_SEARCH = 40;

/** Writes the rules of all ServicePorts of one family. One call is in flight at most. */
export class ServiceRuleWriter {
  readonly #dependencies: ServiceRuleWriterDependencies;
  /** The plans that the kernel has taken. */
  readonly #held = new Map<ServicePortKey, ServicePlan>();
  /** Changed since. */
  readonly #pending = new Set<ServicePortKey>();

  constructor(dependencies: ServiceRuleWriterDependencies) {
    this.#dependencies = dependencies;
  }

  /** Whether the kernel is known to hold the desired state. */
  get isKnown(): boolean {
    return this.#dependencies.writer.isKnown;
  }

  /** Restores that failed, since the process began. */
  get failures(): number {
    return this.#dependencies.writer.failures;
  }

  /** The tables are read again before the next write. */
  forgetRules(): void {
    this.#dependencies.writer.forget();
  }

  /** A ServicePort has other rules than before. */
  changed(key: ServicePortKey): void {
    this.#pending.add(key);
  }

  /**
   * Writes the desired rules except those of ServicePorts that the kernel refuses, which the layout
   * then quarantines. Throws an IptablesError if even the rest cannot be written.
   */
  async write(layout: IptablesLayout, figures: WriteFigures): Promise<void> {
    let recreatesCounters = layout.options.features.nfacct;
    for (let refusals = 1;; refusals++) {
      try {
        return await this.#write(layout, figures);
      } catch (error) {
        if (!(error instanceof IptablesError) || error.kind !== "refused") throw error;
        if (recreatesCounters && mayLackCounter(error)) {
          recreatesCounters = false;
          if (await this.#dependencies.recreateCounters()) continue;
        }
        if (refusals > MAX_NAMED || !this.#leaveOut(layout, error)) {
          return await this.#search(layout, { figures, error });
        }
      }
    }
  }

  /** Reads everything and writes the difference. */
  async verify(layout: IptablesLayout, figures: WriteFigures): Promise<void> {
    this.forgetRules();
    await this.write(layout, figures);
  }

  async #write(layout: IptablesLayout, figures: WriteFigures): Promise<void> {
    await this.#dependencies.writer.write(layout, figures);
    for (const key of this.#pending) {
      const plan = layout.plan(key);
      if (plan) this.#held.set(key, plan);
      else this.#held.delete(key);
      if (plan) this.#dependencies.refused.forget(key);
    }
    this.#pending.clear();
  }

  /** Whether the refused line could be handled. */
  #leaveOut(layout: IptablesLayout, error: IptablesError): boolean {
    const { writer } = this.#dependencies;
    const { number, text, table } = error.line ?? { number: 0, text: "", table: "" };
    const owner = writer.batch?.ownerOf(number);
    const plan = owner && layout.plan(owner);
    if (plan) {
      this.#quarantine(layout, { plan, reason: error.message });
      return true;
    }
    if (text.startsWith("-X ")) {
      writer.keep(chainKey({ table, name: text.slice(3) }));
      return true;
    }
    // Another program may remove the jump; the next read notices.
    return text.startsWith("-D ");
  }

  /**
   * Finds the refused rule by bisection, since iptables-legacy only names the COMMIT. New rules are
   * withdrawn and then added by halves; existing ones keep working.
   */
  async #search(
    layout: IptablesLayout,
    { figures, error }: { readonly figures: WriteFigures; readonly error: IptablesError },
  ): Promise<void> {
    const plans = this.#suspects(layout);
    if (plans.length === 0) throw error;
    const open: (readonly ServicePlan[])[] = [plans];
    try {
      this.#takeBack(layout, plans);
      await this.#write(layout, figures);
      for (let tries = 1; open.length > 0; tries++) {
        const group = open[0]!;
        const refusal = await this.#tryGroup(layout, { group, figures });
        open.shift();
        if (refusal === undefined) continue;
        this.#takeBack(layout, group);
        if (group.length > 1 && tries < MAX_SEARCH) {
          const middle = group.length >> 1;
          open.unshift(group.slice(0, middle), group.slice(middle));
          continue;
        }
        for (const plan of group) this.#quarantine(layout, { plan, reason: refusal.message });
      }
    } catch (failure) {
      // No later change repeats these.
      this.#put(layout, open.flat());
      throw failure;
    }
    await this.#write(layout, figures);
  }

  /** Adds the rules of some; returns why they were refused. */
  async #tryGroup(
    layout: IptablesLayout,
    { group, figures }: { readonly group: readonly ServicePlan[]; readonly figures: WriteFigures },
  ): Promise<IptablesError | undefined> {
    this.#put(layout, group);
    try {
      await this.#write(layout, figures);
      return undefined;
    } catch (error) {
      if (error instanceof IptablesError && error.kind === "refused") return error;
      throw error;
    }
  }

  /** The changed ServicePorts, or all written ones if none changed. */
  #suspects(layout: IptablesLayout): readonly ServicePlan[] {
    const changed = [...this.#pending].map((key) => layout.plan(key))
      .filter((plan) => plan !== undefined);
    if (changed.length > 0) return changed;
    const { batch } = this.#dependencies.writer;
    const owners = new Set(batch?.lines.map((_, index) => batch.ownerOf(index + 1)));
    return [...owners].map((key) => key && layout.plan(key)).filter((plan) => plan !== undefined);
  }

  #takeBack(layout: IptablesLayout, plans: readonly ServicePlan[]): void {
    for (const plan of plans) {
      const held = this.#held.get(plan.key);
      if (held && held !== plan) layout.set(held);
      else layout.delete(plan.key);
      this.#pending.add(plan.key);
    }
  }

  #put(layout: IptablesLayout, plans: readonly ServicePlan[]): void {
    for (const plan of plans) {
      layout.set(plan);
      this.#pending.add(plan.key);
    }
  }

  #quarantine(
    layout: IptablesLayout,
    { plan, reason }: { readonly plan: ServicePlan; readonly reason: string },
  ): void {
    const { clock, refused } = this.#dependencies;
    const refusal = refused.refuse(plan, { reason, now: clock.now() });
    layout.quarantine(refusedItem(clock, plan.key, refusal));
    this.#pending.add(plan.key);
  }
}

/** Whether the refused rule may refer to a counter: iptables-legacy names only the COMMIT. */
function mayLackCounter({ line }: IptablesError): boolean {
  return line === undefined || line.text === "COMMIT" || line.text.includes(" --nfacct-name ");
}
