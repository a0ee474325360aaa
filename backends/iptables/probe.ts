import { Sysctl } from "../../lib/os/sysctl.ts";
import type { HostCheckOptions } from "../../lib/proxy/host_checks.ts";
import { missingText, type ProbeResult, supportOf } from "../../lib/proxy/service_mode.ts";
import {
  IPTABLES_TABLES,
  RULE_FEATURES,
  type RuleFeature,
} from "../netfilter/iptables/iptables_features.ts";
import type { IptablesChoice } from "../netfilter/iptables/iptables_variant.ts";
import { probeChosenIptables, probeIptables } from "../netfilter/iptables/probe_iptables.ts";
import { createScratchCounter, ensureCounters, hasCounters } from "../netfilter/packet_counters.ts";
import { NO_RIGHTS, probeSharedTools } from "../netfilter/probe/try_features.ts";
import type { ProbeDependencies } from "../netfilter/probe/try_tool.ts";
import type { IptablesFeatures } from "./render_options.ts";

/** Matches and targets of the mode's rules. */
const RULES: readonly RuleFeature[] = [
  RULE_FEATURES.dnat,
  RULE_FEATURES.masquerade,
  RULE_FEATURES.randomFully,
  RULE_FEATURES.markTarget,
  {
    ...RULE_FEATURES.statistic,
    required: false,
    lost: "Services with several endpoints are put in quarantine",
  },
  {
    ...RULE_FEATURES.addrtype,
    required: false,
    lost: "Services with external traffic policy Local are put in quarantine; node ports go by " +
      "the addresses of the node",
  },
  RULE_FEATURES.recent,
  RULE_FEATURES.conntrack,
  RULE_FEATURES.mark,
  RULE_FEATURES.comment,
  RULE_FEATURES.reject,
  RULE_FEATURES.sctp,
];

/**
 * Tests all features that the mode needs, in both families. Leaves no objects behind, except those that
 * the mode needs if it is about to run.
 */
export async function probeIptablesMode(
  dependencies: ProbeDependencies,
  options: HostCheckOptions = {},
): Promise<readonly ProbeResult[]> {
  const [tried, tools] = await Promise.all([
    probeRules(dependencies, options),
    probeSharedTools(dependencies, options.signal),
  ]);
  return [...tried, ...tools];
}

async function probeRules(
  dependencies: ProbeDependencies,
  options: HostCheckOptions,
): Promise<readonly ProbeResult[]> {
  const { signal, isForRun: mayAddTables = false } = options;
  const needs = { tables: IPTABLES_TABLES, signal, mayAddTables };
  if (await findCounters(dependencies, options)) {
    return await probeIptables(dependencies, { ...needs, rules: [...RULES, RULE_FEATURES.nfacct] });
  }
  await using counter = await createScratchCounter(dependencies, { signal });
  const { missing, rule } = counter;
  const rules = missing ? RULES : [...RULES, { ...RULE_FEATURES.nfacct, rule }];
  const tried = await probeIptables(dependencies, { ...needs, rules });
  // Without permission no feature could be tested, but the kernel may still have them.
  return missing && !tried.includes(NO_RIGHTS) ? [...tried, missing] : tried;
}

const BE_LIBERAL = "net.netfilter.nf_conntrack_tcp_be_liberal";

/**
 * Probes the features that rules can use, and reads the sysctl that one rule depends on. For a run,
 * creates the counters and tables that the mode needs. Throws an Error if rules cannot be written at all.
 */
export async function findFacts(
  dependencies: ProbeDependencies,
  choice: IptablesChoice,
  { isForRun = false }: Pick<HostCheckOptions, "isForRun"> = {},
): Promise<{ readonly features: IptablesFeatures; readonly beLiberal: boolean }> {
  const areCounted = await findCounters(dependencies, { isForRun });
  const rows = await probeChosenIptables(dependencies, choice, {
    tables: IPTABLES_TABLES,
    rules: areCounted ? [...RULES, RULE_FEATURES.nfacct] : RULES,
    mayAddTables: isForRun,
  });
  const lacking = supportOf(rows).missing;
  if (lacking.length > 0) {
    throw new Error(`Cannot write rules of iptables: ${missingText(lacking)}`);
  }
  const has = (feature: string) => rows.some((row) => row.feature === feature && row.available);
  const { values } = await new Sysctl(dependencies.commands)
    .read([BE_LIBERAL], { mayBeRecent: true });
  return {
    features: {
      addrtype: has(RULE_FEATURES.addrtype.feature),
      comment: has(RULE_FEATURES.comment.feature),
      mangle: has("table mangle"),
      nfacct: has(RULE_FEATURES.nfacct.feature),
      randomFully: has(RULE_FEATURES.randomFully.feature),
      recent: has(RULE_FEATURES.recent.feature),
      sctp: has(RULE_FEATURES.sctp.feature),
      statistic: has(RULE_FEATURES.statistic.feature),
    },
    beLiberal: values.get(BE_LIBERAL) === "1",
  };
}

/** Whether rules may refer to the counters. Those that the tool cannot read cannot be used. */
async function findCounters(
  dependencies: ProbeDependencies,
  { signal, isForRun }: HostCheckOptions,
): Promise<boolean> {
  const find = isForRun ? ensureCounters : hasCounters;
  return await find(dependencies, { signal, mayBeRecent: true });
}
