import type { Cidr } from "../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../net/ip_address.ts";
import { deepEqual } from "./deep_equal.ts";
import type { Endpoint } from "./endpoint.ts";
import { type AddressSettings, type AgentPort, FrontendOwners } from "./frontend_owners.ts";
import type { LocalTrafficDetector } from "./local_traffic.ts";
import { type NodePortAddresses, type NodeState, selectNodePortAddresses } from "./node_state.ts";
import { nodeIpsOf, type NodeTopology, planService, type ServicePlan } from "./service_plan.ts";
import type { ServicePort } from "./service_port.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** Settings of the node that affect decisions. A change makes everything dirty. */
export interface PlanOptions {
  readonly family: IpFamily;
  readonly localTraffic: LocalTrafficDetector;
  readonly nodePortAddresses: NodePortAddresses;
  /** Masquerade everything sent via cluster IPs. */
  readonly masqueradeAll: boolean;
  /** The ports on which kube-relay itself listens on this node. @default {none} */
  readonly agentPorts?: readonly AgentPort[];
  /** Addresses that no Service may have. @default {none} */
  readonly addresses?: AddressSettings;
}

/** The part of the plan that all Services share. */
export interface SharedPlan {
  /** The addresses of this node that serve node ports. */
  readonly nodePortRanges: NodePortAddresses;
  /** The node port addresses that the node has, sorted. */
  readonly nodePortAddresses: readonly IpAddress[];
  /** Every address of the node's own interfaces, without those that kube-relay added. */
  readonly interfaceAddresses: readonly IpAddress[];
  /** The node's address of this family; absent while it is not known. */
  readonly nodeIp?: IpAddress;
  /** Ranges that cluster IPs are taken from, sorted. */
  readonly serviceCidrs: readonly Cidr[];
  readonly localTraffic: LocalTrafficDetector;
  /** The node that the plan is for: its name and zone select endpoints. */
  readonly node: NodeTopology;
}

/** A read-only view of maps that only `updatePlan()` writes. */
export interface ProxyPlan {
  readonly family: IpFamily;
  readonly services: ReadonlyMap<ServicePortKey, ServicePlan>;
  readonly shared: SharedPlan;
}

/** The differences between a plan and that of the last successful sync. */
export interface PlanChanges {
  /** Keys whose ServicePlan is new or differs; look it up in the plan. */
  readonly upserted: ReadonlySet<ServicePortKey>;
  /**
   * The removed ServicePlans, as last planned. After {@linkcode mergePlanChanges} a key may be here
   * and in `upserted`: it was removed and added again, perhaps with other content. Remove first,
   * then add.
   */
  readonly removed: ReadonlyMap<ServicePortKey, ServicePlan>;
  /** Whether {@linkcode ProxyPlan.shared} differs. */
  readonly shared: boolean;
  /** First sync, or a change that affects all Services. `upserted` then holds every key. */
  readonly everything: boolean;
  /**
   * The first listing of objects is incomplete: Services that are missing from the plan may exist.
   * Their objects from an earlier run must stay.
   */
  readonly isPartial?: true;
}

/** The {@linkcode ProxyPlan} that {@linkcode updatePlan} writes. */
export interface MutableProxyPlan extends ProxyPlan {
  readonly services: Map<ServicePortKey, ServicePlan>;
  shared: SharedPlan;
  readonly owners: FrontendOwners;
}

/** What a plan is made from. Unchanged values keep their identity. */
export interface ProxyState {
  readonly services: ReadonlyMap<ServicePortKey, ServicePort>;
  /** Sorted by {@linkcode Endpoint.key}; a ServicePort without endpoints has no entry. */
  readonly endpoints: ReadonlyMap<ServicePortKey, readonly Endpoint[]>;
  readonly node: NodeState;
  /** The ranges of cluster IPs of this family, unsorted. */
  readonly serviceCidrs: readonly Cidr[];
  /** Interface addresses of this family, without those that kube-relay added. */
  readonly interfaceAddresses: readonly IpAddress[];
}

/** What may differ in a {@linkcode ProxyState} since the last update. */
export interface DirtyState {
  readonly keys: ReadonlySet<ServicePortKey>;
  /** Node, ranges of cluster IPs or interface addresses: the shared part of the plan is rebuilt. */
  readonly shared: boolean;
  /** Every ServicePlan must be rebuilt (zone or node name changed, or first sync). */
  readonly everything: boolean;
}

/** Number of ServicePorts planned between two pauses: about 1 ms of work. */
const SLICE_SIZE = 256;
/** The same for their claims. */
const CLAIM_SLICE_SIZE = 1024;
const NO_ENDPOINTS: readonly Endpoint[] = [];

/** A plan without Services. */
export function createProxyPlan(
  { family, localTraffic, nodePortAddresses }: PlanOptions,
): MutableProxyPlan {
  return {
    family,
    services: new Map(),
    owners: new FrontendOwners(),
    shared: {
      nodePortRanges: nodePortAddresses,
      nodePortAddresses: [],
      interfaceAddresses: [],
      serviceCidrs: [],
      localTraffic,
      node: { name: "" },
    },
  };
}

/**
 * Combines the changes of two updates, for a sync after a failed one. A ServicePort that was
 * removed in both keeps the plan of the last sync that succeeded.
 */
export function mergePlanChanges(earlier: PlanChanges, later: PlanChanges): PlanChanges {
  const upserted = new Set(earlier.upserted);
  for (const key of later.removed.keys()) upserted.delete(key);
  for (const key of later.upserted) upserted.add(key);
  return {
    upserted,
    removed: new Map([...later.removed, ...earlier.removed]),
    shared: earlier.shared || later.shared,
    everything: earlier.everything || later.everything,
  };
}

/**
 * Updates a plan to this state, in steps of {@linkcode SLICE_SIZE} ServicePorts, and returns the
 * differences. An equal ServicePlan keeps its identity and, unless everything is dirty, is not in the
 * result. The cost depends on the dirty items, not on the size of the plan. The state must not change in
 * between. A reader sees a mix of old and new ServicePlans until it is done. `onPlanned` gets the old and
 * the new plan of each ServicePort that changed, and has to run in constant time.
 */
export function* updatePlan(
  plan: MutableProxyPlan,
  state: ProxyState,
  dirty: DirtyState,
  options: PlanOptions,
  onPlanned?: (previous: ServicePlan | undefined, next: ServicePlan | undefined) => void,
): Generator<void, PlanChanges, void> {
  const { everything } = dirty;
  const upserted = new Set<ServicePortKey>();
  const removed = new Map<ServicePortKey, ServicePlan>();
  const nodeIps = nodeIpsOf(plan.shared);
  const shared = updateShared(plan, state, dirty, options);
  if (everything) {
    plan.owners.setSettings(options.agentPorts ?? [], options.addresses ?? {});
  }
  if (shared) plan.owners.setNodeAddresses(plan.shared);
  let claimed = 0;
  for (const key of everything ? allKeys(plan, state) : dirty.keys) {
    if (++claimed % CLAIM_SLICE_SIZE === 0) yield;
    plan.owners.update(key, state.services.get(key));
  }
  const affected = new Set(plan.owners.decide());
  const currentIps = nodeIpsOf(plan.shared);
  if (shared && !deepEqual(nodeIps, currentIps)) {
    for (const { key, loadBalancerSourceRanges } of state.services.values()) {
      if (loadBalancerSourceRanges) affected.add(key);
    }
  }
  let planned = 0;
  for (const key of everything ? allKeys(plan, state) : union(dirty.keys, affected)) {
    if (++planned % SLICE_SIZE === 0) yield;
    const previous = plan.services.get(key);
    const servicePort = state.services.get(key);
    const next = servicePort && planService(servicePort, state.endpoints.get(key) ?? NO_ENDPOINTS, {
      node: state.node,
      options,
      nodeIps: currentIps,
      contested: plan.owners.contestedOf(servicePort),
      shared: plan.owners.sharedOf(servicePort),
    });
    if (next === undefined) {
      if (previous === undefined) continue;
      plan.services.delete(key);
      removed.set(key, previous);
      onPlanned?.(previous, undefined);
      continue;
    }
    const isSame = deepEqual(previous, next);
    if (!isSame) {
      plan.services.set(key, next);
      onPlanned?.(previous, next);
    }
    if (!isSame || everything) upserted.add(key);
  }
  return { upserted, removed, shared, everything };
}

function* allKeys(plan: ProxyPlan, state: ProxyState): Generator<ServicePortKey, void, void> {
  yield* state.services.keys();
  for (const key of plan.services.keys()) if (!state.services.has(key)) yield key;
}

function* union<T>(one: ReadonlySet<T>, other: ReadonlySet<T>): Generator<T, void, void> {
  yield* one;
  for (const item of other) if (!one.has(item)) yield item;
}

/** Returns whether the shared part differs, or has to be treated as different. */
function updateShared(
  plan: MutableProxyPlan,
  state: ProxyState,
  dirty: DirtyState,
  options: PlanOptions,
): boolean {
  if (!dirty.shared && !dirty.everything) return false;
  const { name, zone, addresses } = state.node;
  const nodeIp = addresses.find((address) => ipFamilyOf(address) === plan.family);
  const shared: SharedPlan = {
    nodePortRanges: options.nodePortAddresses,
    nodePortAddresses: selectNodePortAddresses(
      options.nodePortAddresses,
      state.interfaceAddresses,
    ),
    interfaceAddresses: state.interfaceAddresses,
    serviceCidrs: [...new Set(state.serviceCidrs)].sort(),
    localTraffic: options.localTraffic,
    ...(nodeIp !== undefined && { nodeIp }),
    node: { name, ...(zone !== undefined && { zone }) },
  };
  const isSame = deepEqual(plan.shared, shared);
  if (!isSame) plan.shared = shared;
  return !isSame || dirty.everything;
}
