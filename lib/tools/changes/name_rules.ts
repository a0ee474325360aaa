import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock } from "../../os/clock.ts";
import type { Backend } from "../../proxy/backend.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import { type RuleName, ruleNames } from "./rule_names.ts";
import type { ServicePlan } from "../../proxy/service_plan.ts";
import type { ChangeEffect, ChangesReport } from "./change_entry.ts";

/** One IP family of the running process. */
export interface ServedFamily {
  readonly family: IpFamily;
  readonly backend: Pick<Backend, "explain">;
  readonly pipeline: { readonly plan: ProxyPlan };
}

/** The maximum number of ServicePorts with rules; the newest entries come first. */
export const MOST_NAMED = 32;

/**
 * Adds {@linkcode ChangeEffect.rules} to the newest effects: the rules that serve a ServicePort now. Only
 * done for a request, so that no sync waits for it.
 */
export async function nameRules(
  { clock, families }: { readonly clock: Clock; readonly families: readonly ServedFamily[] },
  report: ChangesReport,
): Promise<ChangesReport> {
  const known = new Map(families.map((each) => [each.family, new Map<string, Rules>()]));
  const rulesOf = async (family: IpFamily, servicePort: string): Promise<Rules> => {
    const served = families.find((each) => each.family === family);
    const rules = known.get(family);
    if (served === undefined || rules === undefined) return undefined;
    if (!rules.has(servicePort)) {
      if (rules.size >= MOST_NAMED) return undefined;
      await clock.yieldToEventLoop();
      rules.set(servicePort, currentRules(served, servicePort));
    }
    return rules.get(servicePort);
  };
  const entries = [];
  for (const entry of report.entries.toReversed()) {
    if (entry.kind !== "sync") {
      entries.push(entry);
      continue;
    }
    const effects: ChangeEffect[] = [];
    for (const effect of entry.effects) {
      const { servicePort } = effect;
      const rules = servicePort && await rulesOf(entry.family, servicePort);
      effects.push(rules ? { ...effect, rules } : effect);
    }
    entries.push({ ...entry, effects });
  }
  return { ...report, entries: entries.reverse() };
}

/** `undefined` if the mode cannot name rules. */
type Rules = readonly RuleName[] | undefined;

function currentRules({ backend, pipeline: { plan } }: ServedFamily, servicePort: string): Rules {
  const services: ReadonlyMap<string, ServicePlan> = plan.services;
  const service = services.get(servicePort);
  if (service === undefined) return [];
  try {
    return ruleNames(plan, service, backend);
  } catch {
    // The names are an addition: a node with a problem still has to report its changes.
    return undefined;
  }
}
