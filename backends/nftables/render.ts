/**
 * A whole plan as input for `nft -f` on a machine without a table of this mode. Pure.
 *
 * @module
 */
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { atOnce } from "../netfilter/in_steps.ts";
import type { NftChain } from "../netfilter/nft/nft_objects.ts";
import { ElementLines, NftTransaction } from "../netfilter/nft/nft_transaction.ts";
import { claimsOf } from "./entry_id.ts";
import { countingSteps, isCounted } from "./counting_table.ts";
import { chainElement, chainName } from "./chain_spec.ts";
import { CONTAINER_NAMES, type ContainerName, servicesTable } from "./containers.ts";
import { chainOf, elementsOf } from "./entry.ts";
import { NftablesLayout } from "./layout.ts";
import type { NftablesRenderOptions } from "./render_options.ts";

/** The table of one IP family. */
interface NftablesRuleset {
  /** For `nft -f -`. */
  readonly transaction: NftTransaction<ServicePortKey>;
  /** ServicePorts that the available features cannot express. */
  readonly quarantined: readonly Quarantined[];
}

/** Renders a plan from nothing. ServicePorts go in by key: the same plan gives the same bytes. */
export function renderNftables(plan: ProxyPlan, options: NftablesRenderOptions): NftablesRuleset {
  const layout = new NftablesLayout(plan.shared, options);
  for (const key of [...plan.services.keys()].sort()) {
    const service = plan.services.get(key);
    if (service) layout.set(service);
  }
  const chains = new Map<string, NftChain>(layout.baseChains().map((chain) => [chain.name, chain]));
  const added = new Map<ContainerName, ElementLines<ServicePortKey>>();
  const add = ({ kind, name, text }: KernelObject) =>
    added.getOrInsertComputed(kind as ContainerName, () => new ElementLines("add"))
      .add(name, text || undefined, undefined);
  for (const id of layout.ids()) {
    const entry = layout.entry(id, undefined)!;
    const spec = chainOf(entry);
    if (spec !== undefined && !chains.has(chainName(spec))) {
      chains.set(chainName(spec), { name: chainName(spec), rules: layout.chainRules(spec) });
      add(chainElement(chainName(spec)));
    }
    elementsOf(entry).forEach(add);
  }
  layout.sharedElements().forEach(add);
  const steps = NftTransaction.steps(servicesTable(options.family), {
    declared: CONTAINER_NAMES,
    chains: [...chains.values()],
    added,
  });
  return { transaction: atOnce(steps), quarantined: layout.quarantined };
}

/**
 * Renders everything, or some ServicePorts in a separate table. Comments at the end list
 * ServicePorts that the kernel cannot express.
 */
export function* renderText(
  plan: ProxyPlan,
  options: NftablesRenderOptions,
  keys?: ReadonlySet<ServicePortKey>,
): Generator<string> {
  // Elements of different ServicePorts share only chains without names of objects, so a part can be
  // rendered separately.
  const services = servicesOf(plan, keys);
  const { transaction, quarantined } = renderNftables({ ...plan, services }, options);
  yield* transaction.text();
  for (const { key, reason } of quarantined) {
    // Comments of the tool end with their line, and no name or reason has a line break.
    yield `# Left out: ${key}: ${reason}\n`;
  }
}

/** Appends the table that counts the traffic of the same ServicePorts. */
export function* withCounters(
  text: Iterable<string>,
  plan: ProxyPlan,
  keys?: ReadonlySet<ServicePortKey>,
): Generator<string> {
  yield* text;
  const frontends = [...servicesOf(plan, keys).values()].flatMap(claimsOf);
  const added = [...new Set(frontends.filter(isCounted))].sort();
  yield* atOnce(countingSteps(plan.family, { declares: true, added })).text();
}

function servicesOf(
  { services }: ProxyPlan,
  keys: ReadonlySet<ServicePortKey> | undefined,
): ProxyPlan["services"] {
  if (keys === undefined) return services;
  return new Map(
    keys.values().flatMap((key) => {
      const service = services.get(key);
      return service ? [[key, service] as const] : [];
    }),
  );
}
