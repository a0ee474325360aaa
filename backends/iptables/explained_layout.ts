/**
 * The layout that explanations go by.
 *
 * @module
 */
import type { MachineFacts } from "../../lib/proxy/machine_facts.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { IptablesLayout } from "./layout.ts";
import { layOut } from "./render.ts";
import type { IptablesRenderOptions } from "./render_options.ts";

/** What is known beside the plan. */
interface ExplainedLayoutOptions {
  /** Of the plan, if it is the one in force. */
  readonly applied: IptablesLayout | undefined;
  readonly options: IptablesRenderOptions;
  /** Of the machine that the plan is for; `undefined` = nothing is known of it. */
  readonly facts: MachineFacts | undefined;
}

/** Keeps the last one: who asks for a packet may ask for several, and 10,000 ServicePorts take 200 ms. */
export class ExplainedLayout {
  #known: { readonly plan: ProxyPlan; readonly layout: IptablesLayout } | undefined;

  /** The one that is applied, or one for a plan that is only looked at. */
  of(plan: ProxyPlan, { applied, options, facts }: ExplainedLayoutOptions): IptablesLayout {
    if (applied) return applied;
    if (this.#known?.plan !== plan) {
      const shape = facts?.layout ?? [];
      this.#known = {
        plan,
        layout: layOut(plan, options, { shape, isForFew: true, isDeferred: true }),
      };
    }
    return this.#known.layout;
  }
}
