/**
 * A whole plan as input for `nft -f`: what a machine without the table would be given. Pure.
 *
 * @module
 */
import type { PolicyPlan } from "../../../lib/policy/policy_plan.ts";
import { atOnce } from "../../netfilter/in_steps.ts";
import { diffReading } from "./diff.ts";

/** The text in pieces. The same plan gives the same bytes. */
export function renderPolicies(plan: PolicyPlan): Iterable<string> {
  const options = { reading: undefined, isSpoilt: false, refused: new Set<string>() };
  return atOnce(diffReading(plan, options)).transaction.text();
}
