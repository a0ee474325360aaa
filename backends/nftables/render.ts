/**
 * A whole plan as input for `nft -f` on a machine without a table of this mode. Pure.
 *
 * @module
 */
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ProxyPlan } from "../../lib/proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { chainObject, containerObjects, nftTransaction } from "../netfilter/nft/nft_table.ts";
import type { NftTransaction } from "../netfilter/nft/nft_transaction.ts";
import { leftOutText } from "../netfilter/refused_items.ts";
import { servicesTable } from "./containers.ts";
import { countersOf, countingFrame, countingTable } from "./traffic_counters.ts";
import { baseChains } from "./chain_spec.ts";
import { NftablesLayout, sharedElements } from "./layout.ts";
import type { NftablesRenderOptions } from "./render_options.ts";

/** Renders a plan from nothing. ServicePorts go in by key: the same plan gives the same bytes. */
export function renderNftables(plan: ProxyPlan, options: NftablesRenderOptions): {
  readonly transaction: NftTransaction;
  /** ServicePorts that the available features cannot express. */
  readonly quarantined: readonly Quarantined[];
} {
  const layout = new NftablesLayout(plan.shared, options);
  for (const key of [...plan.services.keys()].sort()) {
    const service = plan.services.get(key);
    if (service) layout.set(service);
  }
  const table = servicesTable(options.family);
  const shared = new Map<string, KernelObject>();
  const own: KernelObject[] = [];
  for (const key of layout.plans.keys()) {
    for (const object of layout.objectsOf(layout.numbered(key)!)) {
      if (object.isShared) shared.set(`${object.kind} ${object.name}`, object);
      else own.push(object);
    }
  }
  const objects = [
    ...containerObjects(table),
    ...baseChains(layout).map(chainObject),
    ...shared.values(),
    ...own,
    ...sharedElements(layout),
  ];
  return { transaction: nftTransaction(table, objects), quarantined: layout.quarantined };
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
  yield* quarantined.map(leftOutText);
}

/** Appends the table that counts the traffic of the same ServicePorts. */
export function* withCounters(
  text: Iterable<string>,
  plan: ProxyPlan,
  keys?: ReadonlySet<ServicePortKey>,
): Generator<string> {
  yield* text;
  const counters = [...servicesOf(plan, keys).values()].flatMap(countersOf)
    .map((object) => [`${object.kind} ${object.name}`, object] as const);
  const objects = [
    ...countingFrame(plan.family),
    ...[...new Map(counters)].sort(([left], [right]) => left < right ? -1 : 1)
      .map(([, object]) => object),
  ];
  yield* nftTransaction(countingTable(plan.family), objects).text();
}

function servicesOf(
  { services }: ProxyPlan,
  keys: ReadonlySet<ServicePortKey> | undefined,
): ProxyPlan["services"] {
  return keys === undefined ? services : new Map([...services].filter(([key]) => keys.has(key)));
}
