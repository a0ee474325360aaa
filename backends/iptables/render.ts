/**
 * A whole plan as input for `iptables-restore`: what a machine without rules of ours would be given.
 * Pure.
 *
 * @module
 */
import type { Quarantined } from "../../lib/proxy/backend.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { AppliedRules } from "./applied_rules.ts";
import { baseJumps } from "./base_chains.ts";
import { diffRules } from "./diff.ts";
import { IptablesLayout } from "./layout.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import type { RestoreBatch } from "./restore_batch.ts";
import type { LayoutOrigin } from "./tree_shape.ts";

/** All rules of one IP family. */
export interface IptablesRuleset {
  /** For `iptables-restore --noflush`, or `ip6tables-restore --noflush`. */
  readonly batch: RestoreBatch;
  /** What could not be expressed with the features at hand. */
  readonly quarantined: readonly Quarantined[];
}

/** Renders a plan from nothing. ServicePorts go in by key: the same plan gives the same bytes. */
export function renderIptables(plan: ProxyPlan, options: IptablesRenderOptions): IptablesRuleset {
  const layout = layOut(plan, options);
  const batch = diffRules(layout, new AppliedRules(), { jumps: baseJumps(options) });
  return { batch, quarantined: layout.quarantined };
}

/** Which rule of a plan stands in which chain. */
export function layOut(
  plan: ProxyPlan,
  options: IptablesRenderOptions,
  origin: LayoutOrigin = {},
): IptablesLayout {
  const layout = new IptablesLayout(plan.shared, options, origin);
  for (const key of [...plan.services.keys()].sort()) {
    const service = plan.services.get(key);
    if (service) layout.set(service);
  }
  layout.dropEmpty();
  return layout;
}
