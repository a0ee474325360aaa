/**
 * A plan as text, for people and for `iptables-restore --noflush`. Pure.
 *
 * @module
 */
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { ruleText } from "../netfilter/iptables_objects.ts";
import { renderIptables, renderIptablesAround } from "./render.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import { renderService } from "./render_service.ts";
import { serviceExcerpt } from "./service_excerpt.ts";

/**
 * Everything, or what is for these ServicePorts with what leads there. What has no rules since the
 * kernel lacks what they need is told in comments at the end.
 */
export function* renderText(
  plan: ProxyPlan,
  options: IptablesRenderOptions,
  keys?: ReadonlySet<ServicePortKey>,
): Generator<string> {
  const { batch, quarantined } = keys === undefined
    ? renderIptables(plan, options)
    : renderIptablesAround(plan, options, keys);
  if (keys === undefined) yield* batch.text();
  else yield* serviceExcerpt(batch, { keys, shared: sharedRules(plan, options, keys) });
  for (const { key, address, reason } of quarantined) {
    if (keys && !keys.has(key)) continue;
    // Comments of the tool end with their line, and no name or reason has a line break.
    yield `# Left out: ${key}${address === undefined ? "" : ` (${address})`}: ${reason}\n`;
  }
}

/** As text without chain: a rule that several ServicePorts need may stand there for another one. */
export function sharedRules(
  { services, shared }: ProxyPlan,
  options: IptablesRenderOptions,
  keys: ReadonlySet<ServicePortKey>,
): ReadonlySet<string> {
  const { localTraffic } = shared;
  const rules = new Set<string>();
  for (const key of keys) {
    const service = services.get(key);
    if (service === undefined) continue;
    for (const entry of renderService(service, { localTraffic, options }).entries) {
      for (const rule of entry.rules) rules.add(ruleText(rule));
    }
  }
  return rules;
}
