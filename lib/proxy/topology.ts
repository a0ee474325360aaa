/**
 * Which endpoints of a ServicePort may be used: readiness, topology hints, traffic policies.
 *
 * @module
 */
import { compareEndpoints, type Endpoint } from "./endpoint.ts";
import type { NodeState } from "./node_state.ts";
import type { ServicePort } from "./service_port.ts";

/** The endpoints of a ServicePort, sorted into the lists that its traffic policies ask for. */
export interface CategorizedEndpoints {
  /** What traffic policy Cluster may pick; `undefined` = nothing asks for it. */
  readonly cluster: readonly Endpoint[] | undefined;
  /** What traffic policy Local may pick; `undefined` = nothing asks for it. */
  readonly local: readonly Endpoint[] | undefined;
  /** The endpoints of both lists, sorted by key. */
  readonly reachable: readonly Endpoint[];
  /** Whether there is an endpoint at all. Tells "no local endpoints" (drop) from "none" (reject). */
  readonly hasAny: boolean;
}

/** The own node, as far as topology goes. */
export type NodeTopology = Pick<NodeState, "name" | "zone">;

const NO_ENDPOINTS: readonly Endpoint[] = [];

/** Sorts the endpoints of a ServicePort, which are themselves sorted by key. */
export function categorizeEndpoints(
  endpoints: readonly Endpoint[],
  servicePort: Pick<
    ServicePort,
    "internalTrafficPolicy" | "externalTrafficPolicy" | "externallyAccessible"
  >,
  node: NodeTopology,
): CategorizedEndpoints {
  const { internalTrafficPolicy, externalTrafficPolicy, externallyAccessible } = servicePort;
  // External policy Local needs the cluster list too: pods and the node itself are not bound by it.
  const usesCluster = internalTrafficPolicy === "Cluster" || externallyAccessible;
  const usesLocal = internalTrafficPolicy === "Local" ||
    (externalTrafficPolicy === "Local" && externallyAccessible);
  const cluster = usesCluster ? clusterEndpoints(endpoints, node) : undefined;
  const local = usesLocal ? localEndpoints(endpoints) : undefined;
  const hasAny = (cluster !== undefined && cluster.length > 0) ||
    (usesLocal && endpoints.some((endpoint) => endpoint.ready || isDraining(endpoint)));
  return { cluster, local, reachable: union(cluster, local), hasAny };
}

function clusterEndpoints(
  endpoints: readonly Endpoint[],
  node: NodeTopology,
): readonly Endpoint[] {
  const ready = select(endpoints, (endpoint) => endpoint.ready);
  if (ready.length === 0) return select(endpoints, isDraining);
  return hintedEndpoints(ready, node) ?? ready;
}

/** Ready endpoints on this node; while there is none, those that still serve while they end. */
function localEndpoints(endpoints: readonly Endpoint[]): readonly Endpoint[] {
  const ready = select(endpoints, (endpoint) => endpoint.isLocal && endpoint.ready);
  if (ready.length > 0) return ready;
  return select(endpoints, (endpoint) => endpoint.isLocal && isDraining(endpoint));
}

/**
 * The endpoints hinted for this node or, failing that, for its zone. Hints are all or nothing: one
 * endpoint without a hint says that they are being changed, and nobody hinted for us says that
 * they were made without us in mind.
 */
function hintedEndpoints(
  ready: readonly Endpoint[],
  { name, zone }: NodeTopology,
): readonly Endpoint[] | undefined {
  const levels = [
    { ours: name, hints: (endpoint: Endpoint) => endpoint.nodeHints },
    { ours: zone ?? "", hints: (endpoint: Endpoint) => endpoint.zoneHints },
  ];
  for (const { ours, hints } of levels) {
    if (ours === "" || ready.some((endpoint) => hints(endpoint) === undefined)) continue;
    const hinted = select(ready, (endpoint) => hints(endpoint)?.includes(ours) ?? false);
    if (hinted.length > 0) return hinted;
  }
  return undefined;
}

/** Whether an endpoint is on its way out and still takes connections. */
function isDraining({ serving, terminating }: Endpoint): boolean {
  return serving && terminating;
}

/** As `filter()`, but gives the list itself where all of it is selected: most plans then share one. */
function select(
  endpoints: readonly Endpoint[],
  predicate: (endpoint: Endpoint) => boolean,
): readonly Endpoint[] {
  if (endpoints.every(predicate)) return endpoints;
  const selected = endpoints.filter(predicate);
  // A copy, as V8 leaves the result of filter() with room for 17 items, and plans are kept for long.
  return selected.length === 0 ? NO_ENDPOINTS : selected.slice();
}

function union(
  cluster: readonly Endpoint[] = NO_ENDPOINTS,
  local: readonly Endpoint[] = NO_ENDPOINTS,
): readonly Endpoint[] {
  const all = new Set(cluster);
  const missing = local.filter((endpoint) => !all.has(endpoint));
  if (missing.length === 0) return cluster;
  if (cluster.length === 0) return local;
  return [...cluster, ...missing].sort(compareEndpoints);
}
