/** What other objects would change in addresses and routes. */
import { type KindSpec, type KubeObject, objectKey } from "../../api/kind.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { Informer } from "../../kube/informer.ts";
import type { InformerSet, ListOptions } from "../../kube/informer_set.ts";
import {
  comparePlannedRouting,
  type PlannedRoutingChange,
} from "../../routing/compare_planned_routing.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import type { PlannedNode, PlanNodeDependencies, RoutedObjects } from "../offline/plan_objects.ts";
import { planRouting } from "../offline/plan_routing.ts";
import { readObjectsOnce } from "../offline/read_objects_once.ts";

const KINDS: readonly KindSpec[] = [ROUTED_SERVICE, ROUTED_NODE, NAMESPACE];

/**
 * Reads the new objects of routing, and writes the addresses that Services would get into their status,
 * also of `services`, so that they are planned with them. Returns `undefined` if routing is disabled.
 */
export async function readNewRouted(
  dependencies: PlanNodeDependencies,
  { before, configuration, services }: {
    readonly before: PlannedNode;
    readonly configuration: LoadedConfiguration;
    /** The new objects that Services are planned from. */
    readonly services: InformerSet;
  },
): Promise<RoutedObjects | undefined> {
  if (!before.configuration.proxy.routing.enabled) return undefined;
  const known = await before.readRouted?.();
  if (!known) return undefined;
  const { informers } = await readObjectsOnce(dependencies, {
    ...{ configuration, nodeName: before.nodeName },
    subscriptions: new Map<KindSpec, ListOptions>(KINDS.map((spec) => [spec, {}])),
  });
  const hasServices = informers.of(ROUTED_SERVICE).size > 0;
  if (!hasServices && services.of(SERVICE).size > 0) {
    copy(known.informers, informers, ROUTED_SERVICE);
  }
  if (informers.of(ROUTED_NODE).size === 0) copy(known.informers, informers, ROUTED_NODE);
  for (const set of [before.informers, known.informers]) copy(set, informers, NAMESPACE);
  // Whoever applies manifests leaves the status as it is.
  if (configuration.relay.manifests.length > 0) {
    keepStatus(known.informers.of(ROUTED_SERVICE), informers.of(ROUTED_SERVICE));
    keepStatus(before.informers.of(SERVICE), services.of(SERVICE));
  }
  const routed = { ...known, informers };
  const planned = await planRouting({
    ...{ ...before, plans: new Map() },
    readRouted: () => Promise.resolve(routed),
  });
  for (const key of planned!.statuses.keys()) {
    const addresses = planned!.assignedTo(key);
    if (!addresses) continue;
    setStatus(informers.of(ROUTED_SERVICE), key, addresses);
    setStatus(services.of(SERVICE), key, addresses);
  }
  return routed;
}

/** Compares, as this node would see it. */
export async function compareRoutingPlans(
  before: PlannedNode,
  after: PlannedNode,
): Promise<readonly PlannedRoutingChange[]> {
  const [was, is] = [await planRouting(before), await planRouting(after)];
  return was && is ? comparePlannedRouting(was, is) : [];
}

/** Adds the objects that are missing. */
function copy(from: InformerSet, to: InformerSet, spec: KindSpec): void {
  if (!from.kinds.has(spec.kind)) return;
  const informer = to.of(spec);
  for (const object of from.of(spec).values()) {
    if (informer.get(objectKey(object)) === undefined) informer.upsert(object);
  }
}

/** A Service of any of the kinds that are read. */
interface ServiceWithStatus extends KubeObject {
  readonly status?:
    | {
      readonly loadBalancer?:
        | { readonly ingress?: readonly object[] | undefined }
        | null
        | undefined;
    }
    | null
    | undefined;
}

function keepStatus<T extends ServiceWithStatus>(
  known: Pick<Informer<T>, "get">,
  informer: Pick<Informer<T>, "upsert" | "values">,
): void {
  for (const service of [...informer.values()]) {
    if (service.status?.loadBalancer?.ingress?.length) continue;
    const { status } = known.get(objectKey(service)) ?? {};
    if (status) informer.upsert({ ...service, status });
  }
}

function setStatus<T extends ServiceWithStatus>(
  informer: Pick<Informer<T>, "get" | "upsert">,
  key: ServiceKey,
  addresses: readonly IpAddress[],
): void {
  const service = informer.get(key);
  if (!service) return;
  const known = service.status?.loadBalancer?.ingress ?? [];
  const ingress = addresses.map((ip) =>
    known.find((each) => "ip" in each && each.ip === ip) ?? { ip }
  );
  informer.upsert({ ...service, status: { loadBalancer: { ingress } } });
}
