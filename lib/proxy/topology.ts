/**
 * Which endpoints of a ServicePort may be used: readiness, topology hints, traffic policies.
 *
 * @module
 */
import { compareEndpoints, type Endpoint } from "./endpoint.ts";
import type { NodeState } from "./node_state.ts";
import type { ServicePort, TrafficPolicy } from "./service_port.ts";

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
  const cluster = usesCluster ? selectEndpoints(endpoints, "Cluster", node).endpoints : undefined;
  const local = usesLocal ? selectEndpoints(endpoints, "Local", node).endpoints : undefined;
  const hasAny = (cluster !== undefined && cluster.length > 0) ||
    (usesLocal && endpoints.some((endpoint) => endpoint.ready || isDraining(endpoint)));
  return { cluster, local, reachable: union(cluster, local), hasAny };
}

/** Why an endpoint is not among those that a traffic policy may pick. */
export type ExclusionReason =
  /** It is on another node, and the policy is Local. */
  | "other-node"
  /** It is hinted for other nodes, and some endpoint is for this one. */
  | "node-hint"
  /** It is hinted for other zones, and some endpoint is for that of this node. */
  | "zone-hint"
  /** Others are ready. */
  | "not-ready"
  /** It is not ready, nor does it still serve while it ends; no other one is ready either. */
  | "not-serving";

/** What an endpoint has to be like to be picked. */
interface Criterion {
  readonly otherwise: ExclusionReason;
  readonly holds: (endpoint: Endpoint) => boolean;
}

const LOCAL: Criterion = { otherwise: "other-node", holds: ({ isLocal }) => isLocal };
const READY: Criterion = { otherwise: "not-ready", holds: ({ ready }) => ready };
const DRAINING: Criterion = { otherwise: "not-serving", holds: isDraining };
const CRITERIA = {
  ready: [READY],
  draining: [DRAINING],
  localReady: [LOCAL, READY],
  localDraining: [LOCAL, DRAINING],
} as const satisfies Record<string, readonly Criterion[]>;

/** The endpoints that a traffic policy may pick, and by what they are told from the others. */
interface EndpointSelection {
  readonly endpoints: readonly Endpoint[];
  /** No endpoint is ready: those that still serve while they end are used. */
  readonly isFallback: boolean;
  /** Hints that are followed; absent where none are. */
  readonly hints?: "node" | "zone";
  readonly criteria: readonly Criterion[];
}

/** What a traffic policy may pick of the endpoints of a ServicePort, which are sorted by key. */
export function selectEndpoints(
  endpoints: readonly Endpoint[],
  policy: TrafficPolicy,
  node: NodeTopology,
): EndpointSelection {
  return policy === "Local" ? selectLocal(endpoints) : selectCluster(endpoints, node);
}

/** Why an endpoint is none of a selection; `undefined` = it is one. */
export function exclusionOf(
  endpoint: Endpoint,
  { criteria }: Pick<EndpointSelection, "criteria">,
): ExclusionReason | undefined {
  return criteria.find(({ holds }) => !holds(endpoint))?.otherwise;
}

function selectCluster(endpoints: readonly Endpoint[], node: NodeTopology): EndpointSelection {
  const ready = selectionBy(endpoints, CRITERIA.ready);
  if (ready.endpoints.length === 0) {
    return { ...selectionBy(endpoints, CRITERIA.draining), isFallback: true };
  }
  return hintedEndpoints(ready.endpoints, node) ?? ready;
}

/** Ready endpoints on this node; while there is none, those that still serve while they end. */
function selectLocal(endpoints: readonly Endpoint[]): EndpointSelection {
  const ready = selectionBy(endpoints, CRITERIA.localReady);
  if (ready.endpoints.length > 0) return ready;
  return { ...selectionBy(endpoints, CRITERIA.localDraining), isFallback: true };
}

/**
 * The endpoints hinted for this node or, failing that, for its zone. Hints are all or nothing: one
 * endpoint without a hint says that they are being changed, and nobody hinted for us says that
 * they were made without us in mind.
 */
function hintedEndpoints(
  ready: readonly Endpoint[],
  { name, zone }: NodeTopology,
): EndpointSelection | undefined {
  const levels = [
    { level: "node", ours: name, hints: (endpoint: Endpoint) => endpoint.nodeHints },
    { level: "zone", ours: zone ?? "", hints: (endpoint: Endpoint) => endpoint.zoneHints },
  ] as const;
  for (const { level, ours, hints } of levels) {
    if (ours === "" || ready.some((endpoint) => hints(endpoint) === undefined)) continue;
    const criterion: Criterion = {
      otherwise: `${level}-hint`,
      holds: (endpoint) => hints(endpoint)?.includes(ours) ?? false,
    };
    const { endpoints } = selectionBy(ready, [criterion]);
    if (endpoints.length === 0) continue;
    return { endpoints, isFallback: false, hints: level, criteria: [READY, criterion] };
  }
  return undefined;
}

function selectionBy(
  endpoints: readonly Endpoint[],
  criteria: readonly Criterion[],
): EndpointSelection {
  const selected = select(
    endpoints,
    (endpoint) => criteria.every(({ holds }) => holds(endpoint)),
  );
  return { endpoints: selected, isFallback: false, criteria };
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
