/**
 * A whole plan as input for `iptables-restore` on a machine without rules of this mode. Pure.
 *
 * @module
 */
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { inPieces } from "../../lib/os/command_input.ts";
import { restoreLines, ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { targetOf } from "../netfilter/iptables/iptables_save.ts";
import { leftOutText } from "../netfilter/refused_items.ts";
import { baseJumps, rangeRules } from "./base_chains.ts";
import { chainKey, IptablesLayout } from "./layout.ts";
import { type IptablesRenderOptions, isInMasqueradedRange } from "./render_options.ts";
import { renderService } from "./render_service.ts";
import { ruleBatch } from "./rule_batch.ts";

/** Renders a plan from scratch. ServicePorts are added in the order of their keys, so the same plan gives the same bytes. */
export function renderIptables(plan: ProxyPlan, options: IptablesRenderOptions): {
  /** For `iptables-restore --noflush`, or `ip6tables-restore --noflush`. */
  readonly lines: readonly string[];
  /** ServicePorts that the available features cannot express. */
  readonly quarantined: readonly Quarantined[];
} {
  const layout = layOut(plan, options);
  const lines = restoreLines(ruleBatch([...layout.contents()], baseJumps(options)));
  return { lines, quarantined: layout.quarantined };
}

/** Computes the chain of each rule of a plan. */
export function layOut(plan: ProxyPlan, options: IptablesRenderOptions): IptablesLayout {
  const layout = new IptablesLayout(plan.shared, options);
  for (const key of [...plan.services.keys()].sort()) {
    const service = plan.services.get(key);
    if (service) layout.set(service);
  }
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
    const { lines, quarantined } = renderIptables(plan, options);
    yield* inPieces(lines);
    yield* quarantined.map(leftOutText);
    return;
  }
  const layout = layOut(plan, options);
  yield* inPieces(excerptOf(layout, keys, sharedRules(plan, options, keys)));
  yield* layout.quarantined.filter(({ key }) => keys.has(key)).map(leftOutText);
}

/** The rules of some ServicePorts, with the chains above that lead to them, and all of those below. */
function excerptOf(
  layout: IptablesLayout,
  keys: ReadonlySet<ServicePortKey>,
  shared: ReadonlySet<string>,
): readonly string[] {
  const lineOf = (table: string, chain: string, text: string, owner?: ServicePortKey) => ({
    text,
    at: `${table} ${chain}`,
    to: `${table} ${targetOf(text)}`,
    isOwn: (owner !== undefined && keys.has(owner)) || shared.has(text),
  });
  const jumps = baseJumps(layout.options).map((jump) => ({
    jump,
    line: lineOf(jump.table, jump.from, ruleText(jump.rule)),
  }));
  const chains = [...layout.contents()];
  const lines = chains.flatMap(({ table, name, rules, owners }) =>
    rules.map((text, index) => lineOf(table, name, text, owners[index]))
  );
  const all = [...lines, ...jumps.map(({ line }) => line)];
  const from = Map.groupBy(all, ({ at }) => at);
  const to = Map.groupBy(all, ({ to }) => to);
  const own = lines.filter(({ isOwn }) => isOwn);
  const above = reached(own.map(({ at }) => at), (chain) => to.get(chain)?.map(({ at }) => at));
  const below = reached(own.map(({ to }) => to), (chain) => from.get(chain)?.map(({ to }) => to));
  const isKept = ({ at, to, isOwn }: (typeof all)[number]) =>
    isOwn || above.has(to) || below.has(at);
  const kept = chains.filter((each) => above.has(chainKey(each)) || below.has(chainKey(each)))
    .map(({ table, name }) => {
      const rules = from.get(chainKey({ table, name })) ?? [];
      return { table, name, rules: rules.filter(isKept).map(({ text }) => text) };
    });
  const keptJumps = jumps.filter(({ line }) => isKept(line)).map(({ jump }) => jump);
  return restoreLines(ruleBatch(kept, keptJumps));
}

/** Returns all chains reachable from `start`, including `start`. */
function reached(
  start: readonly string[],
  next: (chain: string) => readonly string[] | undefined,
): ReadonlySet<string> {
  const found = new Set(start);
  for (const chain of found) for (const further of next(chain) ?? []) found.add(further);
  return found;
}

/**
 * Rules without their chain: a chain that several ServicePorts need may be in the text of another
 * one.
 */
function sharedRules(
  { services, shared }: ProxyPlan,
  options: IptablesRenderOptions,
  keys: ReadonlySet<ServicePortKey>,
): ReadonlySet<string> {
  const rules = new Set<string>();
  for (const key of keys) {
    const service = services.get(key);
    if (service === undefined) continue;
    for (const entry of renderService(service, shared.localTraffic, options).entries.values()) {
      for (const rule of entry.rules) rules.add(rule);
    }
    if (!isInMasqueradedRange(options, service.clusterIp)) continue;
    for (const rule of rangeRules(options)) rules.add(ruleText(rule));
  }
  return rules;
}
