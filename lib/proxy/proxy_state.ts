/**
 * The state that the plan is made from: what the trackers have collected for one IP family.
 *
 * @module
 */
import type { Cidr } from "../net/cidr.ts";
import type { IpAddress } from "../net/ip_address.ts";
import { deepEqual } from "./deep_equal.ts";
import type { Endpoint } from "./endpoint.ts";
import type { EndpointsChanges } from "./endpoints_changes.ts";
import type { NodeState } from "./node_state.ts";
import type { ServiceChanges } from "./service_changes.ts";
import type { ServicePort } from "./service_port.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/**
 * A read-only view of maps that only `applyChanges()` writes. The values keep their identity while
 * they are unchanged.
 */
export interface ProxyState {
  readonly services: ReadonlyMap<ServicePortKey, ServicePort>;
  /** Sorted by {@linkcode Endpoint.key}; a ServicePort without endpoints has no entry. */
  readonly endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]>;
  readonly node: NodeState;
  /** Of this family; unsorted. */
  readonly serviceCidrs: readonly Cidr[];
  /** Addresses of this family that the machine's interfaces have, but for those we added ourselves. */
  readonly interfaceAddresses: readonly IpAddress[];
}

/** What a drain of the trackers, or a change of the node, has touched. */
export interface DirtyState {
  readonly keys: ReadonlySet<ServicePortKey>;
  /** Node, service CIDRs or interface addresses differ: the shared part of the plan is made anew. */
  readonly shared: boolean;
  /** Every ServicePlan has to be made anew (zone or node name changed, or first sync). */
  readonly everything: boolean;
}

/** The {@linkcode ProxyState} that {@linkcode applyChanges} writes. */
export interface MutableProxyState extends ProxyState {
  readonly services: Map<ServicePortKey, ServicePort>;
  readonly endpoints: Map<ServicePortKey, readonly Endpoint[]>;
  node: NodeState;
  serviceCidrs: readonly Cidr[];
  interfaceAddresses: readonly IpAddress[];
  /** Whether changes were applied before; the first ones concern everything. */
  started: boolean;
}

/** What may change between two syncs; what is left out stays as it is. */
export interface StateChanges {
  readonly services?: Pick<ServiceChanges, "upserted" | "removed">;
  readonly endpoints?: Pick<EndpointsChanges, "endpoints">;
  readonly node?: NodeState;
  readonly serviceCidrs?: readonly Cidr[];
  readonly interfaceAddresses?: readonly IpAddress[];
}

/** A state without Services. */
export function createProxyState(node: NodeState): MutableProxyState {
  return {
    services: new Map(),
    endpoints: new Map(),
    node,
    serviceCidrs: [],
    interfaceAddresses: [],
    started: false,
  };
}

/**
 * Writes changes into the state and says what they touch. Values that come out equal are left
 * alone and touch nothing. Costs what the changes cost, whatever the size of the state.
 */
export function applyChanges(state: MutableProxyState, changes: StateChanges): DirtyState {
  const keys = new Set<ServicePortKey>();
  if (changes.services) applyServices(state.services, changes.services, keys);
  if (changes.endpoints) applyEndpoints(state.endpoints, changes.endpoints, keys);
  const { node, serviceCidrs, interfaceAddresses } = state;
  state.node = changedOr(node, changes.node);
  state.serviceCidrs = changedOr(serviceCidrs, changes.serviceCidrs);
  state.interfaceAddresses = changedOr(interfaceAddresses, changes.interfaceAddresses);
  const everything = !state.started || node.name !== state.node.name ||
    node.zone !== state.node.zone;
  const shared = everything || node !== state.node || serviceCidrs !== state.serviceCidrs ||
    interfaceAddresses !== state.interfaceAddresses;
  state.started = true;
  return { keys, shared, everything };
}

function applyServices(
  services: MutableProxyState["services"],
  { upserted, removed }: NonNullable<StateChanges["services"]>,
  dirty: Set<ServicePortKey>,
): void {
  for (const key of removed) {
    if (services.delete(key)) dirty.add(key);
  }
  for (const [key, servicePort] of upserted) {
    if (deepEqual(services.get(key), servicePort)) continue;
    services.set(key, servicePort);
    dirty.add(key);
  }
}

function applyEndpoints(
  lists: MutableProxyState["endpoints"],
  { endpoints }: NonNullable<StateChanges["endpoints"]>,
  dirty: Set<ServicePortKey>,
): void {
  for (const [key, list] of endpoints) {
    const previous = lists.get(key) ?? [];
    if (deepEqual(previous, list)) continue;
    if (list.length === 0) lists.delete(key);
    else lists.set(key, list);
    dirty.add(key);
  }
}

function changedOr<T>(previous: T, next: T | undefined): T {
  return next === undefined || deepEqual(previous, next) ? previous : next;
}
