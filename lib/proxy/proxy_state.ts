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
 * A read-only view of maps that only `applyChanges()` writes. Unchanged values keep their identity.
 */
export interface ProxyState {
  readonly services: ReadonlyMap<ServicePortKey, ServicePort>;
  /** Sorted by {@linkcode Endpoint.key}; a ServicePort without endpoints has no entry. */
  readonly endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]>;
  readonly node: NodeState;
  /** The addresses of this family, unsorted. */
  readonly serviceCidrs: readonly Cidr[];
  /** Interface addresses of this family, without those that kube-relay added. */
  readonly interfaceAddresses: readonly IpAddress[];
}

/** The ServicePorts that a drain of the trackers, or a change of the node, affects. */
export interface DirtyState {
  readonly keys: ReadonlySet<ServicePortKey>;
  /** Node, service CIDRs or interface addresses changed: the shared part of the plan is rebuilt. */
  readonly shared: boolean;
  /** Every ServicePlan must be rebuilt (zone or node name changed, or first sync). */
  readonly everything: boolean;
}

/** The {@linkcode ProxyState} that {@linkcode applyChanges} writes. */
export interface MutableProxyState extends ProxyState {
  readonly services: Map<ServicePortKey, ServicePort>;
  readonly endpoints: Map<ServicePortKey, readonly Endpoint[]>;
  node: NodeState;
  serviceCidrs: readonly Cidr[];
  interfaceAddresses: readonly IpAddress[];
  /** Whether changes were applied before; the first changes affect everything. */
  started: boolean;
}

/** The input that may change between two syncs; absent fields are unchanged. */
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
 * Applies changes to the state and returns the affected items. Equal values are kept and affect
 * nothing. The cost depends on the changes, not on the size of the state.
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
