/**
 * The rules and sets of a plan as input for `ipset restore` and `iptables-restore`. Pure.
 *
 * @module
 */
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { addLine, createLine } from "../../netfilter/ipset/ipset_text.ts";
import { restoreLines } from "../../netfilter/iptables/restore_batch.ts";
import { BASE_JUMPS } from "./base_chains.ts";
import { policyChains, policySets } from "./layout.ts";

/** Renders all sets, sorted, then all chains. */
export function* renderPolicies(plan: PolicyPlan): Generator<string> {
  for (const { name, options, entries } of policySets(plan)) {
    yield `${createLine(name, options)}\n`;
    for (const entry of [...entries].sort()) yield `${addLine(name, entry)}\n`;
  }
  const chains = [...policyChains(plan)];
  const lines = restoreLines([{ table: "filter", chains, jumps: BASE_JUMPS }]);
  for (const line of lines) yield `${line}\n`;
}
