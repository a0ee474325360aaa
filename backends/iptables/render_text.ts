/**
 * A plan as text, for people and for `iptables-restore --noflush`. Pure.
 *
 * @module
 */
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { ruleText } from "../netfilter/iptables_objects.ts";
import { renderIptables, renderIptablesAround } from "./render.ts";
import type { IptablesRenderOptions } from "./render_options.ts";
import { renderService } from "./render_service.ts";
import { serviceExcerpt, ServiceExcerpts } from "./service_excerpt.ts";

/**
 * Everything, or what is for these ServicePorts with what leads there. What has no rules since the
 * kernel lacks what they need is told in comments at the end.
 */
export function* renderText(
  plan: ProxyPlan,
  options: IptablesRenderOptions,
  keys?: ReadonlySet<ServicePortKey>,
): Generator<string> {
  if (keys === undefined) {
    const { batch, quarantined } = renderIptables(plan, options);
    yield* batch.text();
    yield* quarantined.map(leftOutText);
    return;
  }
  const { batch, quarantined } = renderIptablesAround(plan, options, keys);
  yield* serviceExcerpt(batch, { keys, shared: sharedRules(plan, options, keys) });
  yield* quarantined.filter(({ key }) => keys.has(key)).map(leftOutText);
}

/** As {@linkcode renderText} for each of these ServicePorts alone, but the rules are laid out once. */
export function* renderEach(
  plan: ProxyPlan,
  options: IptablesRenderOptions,
  keys: ReadonlySet<ServicePortKey>,
): Generator<readonly [ServicePortKey, string]> {
  const { batch, quarantined } = renderIptablesAround(plan, options, keys);
  const excerpts = new ServiceExcerpts(batch);
  const leftOut = Map.groupBy(quarantined, ({ key }) => key);
  for (const key of keys) {
    const alone = new Set([key]);
    const rules = excerpts.text({ keys: alone, shared: sharedRules(plan, options, alone) });
    yield [key, [...rules, ...leftOut.get(key)?.map(leftOutText) ?? []].join("")];
  }
}

/** Comments of the tool end with their line, and no name or reason has a line break. */
function leftOutText({ key, address, reason }: Quarantined): string {
  return `# Left out: ${key}${address === undefined ? "" : ` (${address})`}: ${reason}\n`;
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
