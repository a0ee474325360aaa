/**
 * What the iptables mode needs of a machine.
 *
 * @module
 */
import type { ProbeResult } from "../../lib/proxy/backend.ts";
import { RULE_FEATURES } from "../netfilter/iptables_features.ts";
import { IPTABLES_TABLES } from "../netfilter/iptables_tables.ts";
import type { RuleFeature } from "../netfilter/probe/iptables_trial.ts";
import type { ProbeDependencies } from "../netfilter/probe/try_tool.ts";
import { probeIptables } from "../netfilter/probe_iptables.ts";
import { probeSharedTools } from "../netfilter/probe_shared_tools.ts";

/** Matches and targets of the mode's rules. */
const RULES: readonly RuleFeature[] = [
  RULE_FEATURES.dnat,
  RULE_FEATURES.masquerade,
  RULE_FEATURES.randomFully,
  RULE_FEATURES.markTarget,
  RULE_FEATURES.statistic,
  RULE_FEATURES.addrtype,
  RULE_FEATURES.recent,
  RULE_FEATURES.conntrack,
  RULE_FEATURES.mark,
  RULE_FEATURES.comment,
  RULE_FEATURES.reject,
  RULE_FEATURES.nfacct,
];

/** Tries everything that the mode needs, in both families; leaves nothing behind. */
export async function probeIptablesMode(
  dependencies: ProbeDependencies,
  { signal }: { readonly signal?: AbortSignal | undefined } = {},
): Promise<readonly ProbeResult[]> {
  const [rules, tools] = await Promise.all([
    probeIptables(dependencies, { tables: IPTABLES_TABLES, rules: RULES, signal }),
    probeSharedTools(dependencies, { signal }),
  ]);
  return [...rules, ...tools];
}
