/**
 * A whole plan as input for `nft -f`: what a machine without a table of ours would be given. Pure.
 *
 * @module
 */
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import { AppliedTable } from "./applied_table.ts";
import { diffTable } from "./diff.ts";
import { NftablesLayout } from "./layout.ts";
import type { NftablesRenderOptions } from "./render_options.ts";
import type { Transaction } from "./transaction.ts";

/** The table of one IP family. */
interface NftablesRuleset {
  /** For `nft -f -`. */
  readonly transaction: Transaction;
  /** What could not be expressed with the features at hand. */
  readonly quarantined: readonly Quarantined[];
}

/** Renders a plan from nothing. ServicePorts go in by key: the same plan gives the same bytes. */
export function renderNftables(plan: ProxyPlan, options: NftablesRenderOptions): NftablesRuleset {
  const layout = new NftablesLayout(plan.shared, options);
  for (const key of [...plan.services.keys()].sort()) {
    const service = plan.services.get(key);
    if (service) layout.set(service);
  }
  return { transaction: diffTable(layout, new AppliedTable()), quarantined: layout.quarantined };
}
