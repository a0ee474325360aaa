/**
 * A whole plan as input for `iptables-restore` on a machine without rules of this mode. Pure.
 *
 * @module
 */
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { baseJumps, rangeRules } from "./base_chains.ts";
import { chainKey, type ChainRef } from "./chain_ref.ts";
import { IptablesLayout } from "./layout.ts";
import { type IptablesRenderOptions, isInMasqueradedRange } from "./render_options.ts";
import { renderService } from "./render_service.ts";
import { ruleBatch } from "./rule_batch.ts";
import type { RestoreBatch } from "../netfilter/iptables/restore_batch.ts";
import { serviceExcerpt, ServiceExcerpts } from "./service_excerpt.ts";
import type { LayoutOrigin } from "./tree_shape.ts";

/** All rules of one IP family. */
interface IptablesRuleset {
  /** For `iptables-restore --noflush`, or `ip6tables-restore --noflush`. */
  readonly batch: RestoreBatch<ServicePortKey>;
  /** ServicePorts that the available features cannot express. */
  readonly quarantined: readonly Quarantined[];
}

/** Renders a plan from scratch. ServicePorts are added in the order of their keys, so the same plan gives the same bytes. */
export function renderIptables(plan: ProxyPlan, options: IptablesRenderOptions): IptablesRuleset {
  const layout = layOut(plan, options);
  return rulesetOf(layout, layout.dirty);
}

/**
 * Renders the chains of {@linkcode renderIptables} that concern some ServicePorts: those with their
 * rules, and the chains before and after them. Chains shared with other ServicePorts are complete.
 */
function renderIptablesAround(
  plan: ProxyPlan,
  options: IptablesRenderOptions,
  keys: ReadonlySet<ServicePortKey>,
): IptablesRuleset {
  const layout = layOut(plan, options, { isForFew: true });
  const near = new Set<string>();
  for (const key of keys) {
    const service = plan.services.get(key);
    if (service === undefined) continue;
    const { localTraffic } = plan.shared;
    for (const { tree, path } of renderService(service, { localTraffic, options }).entries) {
      for (const ref of layout.branch(tree, path)) near.add(chainKey(ref));
    }
  }
  const dirty = layout.dirty.filter((ref) => {
    const { source } = ref;
    if (source.kind === "service") return keys.has(source.key);
    return source.kind === "base" || source.prefix === "" || near.has(chainKey(ref));
  });
  return rulesetOf(layout, dirty);
}

function rulesetOf(layout: IptablesLayout, refs: readonly ChainRef[]): IptablesRuleset {
  const chains = refs.flatMap((ref) => {
    const content = layout.content(ref);
    return content ? [{ ...ref, ...content }] : [];
  });
  const batch = ruleBatch({ chains, jumps: baseJumps(layout.options) });
  return { batch, quarantined: layout.quarantined };
}

/** Computes the chain of each rule of a plan. */
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

/**
 * Renders everything, or the rules for some ServicePorts and the jumps to them. Comments at the end
 * list ServicePorts that the kernel cannot express.
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

/** As {@linkcode renderText} for each of these ServicePorts alone, but lays the rules out once. */
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

/**
 * Rules without their chain: a chain that several ServicePorts need may be in the text of another
 * one.
 */
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
    if (!isInMasqueradedRange(options, service.clusterIp)) continue;
    for (const rule of rangeRules(options)) rules.add(ruleText(rule));
  }
  return rules;
}
