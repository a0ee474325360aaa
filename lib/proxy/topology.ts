import { compareEndpoints, type Endpoint } from "./endpoint.ts";
import type { NodeState } from "./node_state.ts";
import type { ServicePort, TrafficPolicy } from "./service_port.ts";

/** The endpoints of a ServicePort, in the lists that its traffic policies need. */
export interface CategorizedEndpoints {
  /** Endpoints for traffic policy Cluster; `undefined` = not needed. */
  readonly cluster: readonly Endpoint[] | undefined;
  /** Endpoints for traffic policy Local; `undefined` = not needed. */
  readonly local: readonly Endpoint[] | undefined;
  /** The endpoints of both lists, sorted by key. */
  readonly reachable: readonly Endpoint[];
  /** Whether any endpoint is usable: separates "no local endpoints" (drop) from "none" (reject). */
  readonly hasAny: boolean;
}

/** The properties of the own node that topology needs. */
export type NodeTopology = Pick<NodeState, "name" | "zone">;

const NO_ENDPOINTS: readonly Endpoint[] = [];

/** Categorizes the endpoints of a ServicePort. `endpoints` are sorted by key. */
export function categorizeEndpoints(
  endpoints: readonly Endpoint[],
  servicePort: Pick<
    ServicePort,
    "internalTrafficPolicy" | "externalTrafficPolicy" | "externallyAccessible"
  >,
  node: NodeTopology,
): CategorizedEndpoints {
  const { internalTrafficPolicy, externalTrafficPolicy, externallyAccessible } = servicePort;
  // External policy Local needs the cluster list, too: it does not bind pods and the node itself.
  const usesCluster = internalTrafficPolicy === "Cluster" || externallyAccessible;
  const usesLocal = internalTrafficPolicy === "Local" ||
    (externalTrafficPolicy === "Local" && externallyAccessible);
  const cluster = usesCluster ? selectEndpoints(endpoints, "Cluster", node).endpoints : undefined;
  const local = usesLocal ? selectEndpoints(endpoints, "Local", node).endpoints : undefined;
  const hasAny = (cluster !== undefined && cluster.length > 0) ||
    (usesLocal && endpoints.some((endpoint) => endpoint.ready || isDraining(endpoint)));
  return { cluster, local, reachable: union(cluster, local), hasAny };
}

/** The reason why a traffic policy excludes an endpoint. */
export type ExclusionReason =
  /** It is on another node, and the policy is Local. */
  | "other-node"
  /** It is hinted for other nodes, and another endpoint is hinted for this node. */
  | "node-hint"
  /** It is hinted for other zones, and another endpoint is hinted for this node's zone. */
  | "zone-hint"
  /** It is not ready, and other endpoints are. */
  | "not-ready"
  /** It is neither ready nor terminating and still serving; no other endpoint is ready either. */
  | "not-serving";

/** A condition for the selection of an endpoint. */
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

/** The endpoints that a traffic policy may choose, and the criteria of the selection. */
interface EndpointSelection {
  readonly endpoints: readonly Endpoint[];
  /** No endpoint is ready: terminating endpoints that still serve are used. */
  readonly isFallback: boolean;
  /** The hints in effect; absent if none are. */
  readonly hints?: "node" | "zone";
  readonly criteria: readonly Criterion[];
}

/** The endpoints that a traffic policy may choose. `endpoints` are sorted by key. */
export function selectEndpoints(
  endpoints: readonly Endpoint[],
  policy: TrafficPolicy,
  node: NodeTopology,
): EndpointSelection {
  return policy === "Local" ? selectLocal(endpoints) : selectCluster(endpoints, node);
}

/** Returns the reason why an endpoint is not selected; `undefined` = it is selected. */
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

/** Returns the ready endpoints on this node, or if none is ready, the serving and terminating ones. */
function selectLocal(endpoints: readonly Endpoint[]): EndpointSelection {
  const ready = selectionBy(endpoints, CRITERIA.localReady);
  if (ready.endpoints.length > 0) return ready;
  return { ...selectionBy(endpoints, CRITERIA.localDraining), isFallback: true };
}

/** The kinds of hints, the more specific one first. */
const HINT_LEVELS = [
  { level: "node", hints: (endpoint: Endpoint) => endpoint.nodeHints },
  { level: "zone", hints: (endpoint: Endpoint) => endpoint.zoneHints },
] as const;

/**
 * The endpoints hinted for this node or else for its zone. Hints are used only if all endpoints
 * have them: one without a hint means that hints are being updated. If no endpoint is hinted for
 * this node or zone, the hints do not account for it.
 */
function hintedEndpoints(
  ready: readonly Endpoint[],
  { name, zone }: NodeTopology,
): EndpointSelection | undefined {
  for (const { level, hints } of HINT_LEVELS) {
    const ours = level === "node" ? name : zone ?? "";
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

/** Whether an endpoint is terminating and still serves. */
function isDraining({ serving, terminating }: Endpoint): boolean {
  return serving && terminating;
}

/** As `filter()`, but returns the list itself if all is selected, so that most plans share one. */
function select(
  endpoints: readonly Endpoint[],
  predicate: (endpoint: Endpoint) => boolean,
): readonly Endpoint[] {
  if (endpoints.every(predicate)) return endpoints;
  const selected = endpoints.filter(predicate);
  // A copy: V8 leaves the result of filter() with room for 17 items, and plans are kept for long.
  return selected.length === 0 ? NO_ENDPOINTS : selected.slice();
}

function union(
  cluster: readonly Endpoint[] = NO_ENDPOINTS,
  local: readonly Endpoint[] = NO_ENDPOINTS,
): readonly Endpoint[] {
  if (local.length === 0) return cluster;
  const all = new Set(cluster);
  const missing = local.filter((endpoint) => !all.has(endpoint));
  if (missing.length === 0) return cluster;
  if (cluster.length === 0) return local;
  return [...cluster, ...missing].sort(compareEndpoints);
}
