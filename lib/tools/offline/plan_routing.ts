/**
 * Plans the addresses and routes of a node from objects that were read or dumped.
 *
 * @module
 */
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import type { ListOptions } from "../../kube/informer_set.ts";
import type { KindSpec } from "../../api/kind.ts";
import { type Cidr, tryParseCidr } from "../../net/cidr.ts";
import { PlannedRouting } from "../../routing/planned_routing.ts";
import type { PlannedNode } from "./plan_objects.ts";

/** The kinds that are read, and which of their objects. */
export function routedSubscriptions(
  { proxy }: Pick<LoadedConfiguration, "proxy">,
): ReadonlyMap<KindSpec, ListOptions> {
  const { pools } = routingSettingsOf(proxy.routing);
  const needsNamespaces = pools.some(({ namespaceSelector }) => namespaceSelector);
  const kinds = [ROUTED_SERVICE, ROUTED_NODE, ...(needsNamespaces ? [NAMESPACE] : [])];
  return new Map<KindSpec, ListOptions>(kinds.map((spec) => [spec as KindSpec, {}]));
}

/** Plans; `undefined` if routing is disabled. */
export async function planRouting(planned: PlannedNode): Promise<PlannedRouting | undefined> {
  const { configuration: { proxy }, nodeName, plans } = planned;
  if (!proxy.routing.enabled || planned.readRouted === undefined) return undefined;
  const { informers, ...known } = await planned.readRouted();
  const namespaces = [planned.informers, informers].flatMap((set) =>
    set.kinds.has(NAMESPACE.kind) ? [...set.of(NAMESPACE).values()] : []
  );
  return new PlannedRouting({
    settings: routingSettingsOf(proxy.routing),
    nodeName,
    nodes: informers.of(ROUTED_NODE).values(),
    services: informers.of(ROUTED_SERVICE).values(),
    namespaces: new Map(namespaces.map(({ metadata: { name, labels } }) => [name, labels ?? {}])),
    plans: [...plans.values()].flatMap(({ services }) => [...services.values()]),
    serviceRanges: [...plans.values()].flatMap(({ shared }) => shared.serviceCidrs),
    clusterCidrs: clusterCidrsOf(proxy),
    ...known,
  });
}

/** The ranges of all pods. */
function clusterCidrsOf(
  { clusterCIDR }: Pick<LoadedConfiguration["proxy"], "clusterCIDR">,
): readonly Cidr[] {
  return clusterCIDR.split(",").flatMap((text) => tryParseCidr(text.trim()) ?? []);
}
