/**
 * What a node plans from objects that were read or dumped: its Services, its NetworkPolicies, and its
 * addresses and routes. Nothing here touches the machine.
 *
 * @module
 */
import { type KindSpec, objectKey } from "../../api/kind.ts";
import { CLUSTER_NETWORK_POLICY } from "../../api/kinds/cluster_network_policy.ts";
import { ENDPOINT_SLICE } from "../../api/kinds/endpoint_slice.ts";
import { ENDPOINTS } from "../../api/kinds/endpoints.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import { NETWORK_POLICY } from "../../api/kinds/network_policy.ts";
import { NODE, type Node } from "../../api/kinds/node.ts";
import { POD } from "../../api/kinds/pod.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import {
  BGP_PEER,
  LOAD_BALANCER_POOL,
  ROUTING_OBJECT_KINDS,
} from "../../api/kinds/routing_objects.ts";
import { ROUTED_SERVICE } from "../../api/kinds/routed_service.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { type ObjectProblem, problemText } from "../../api/problem.ts";
import type { BackendDependencies, BackendTable, Dependencies } from "../../app/dependencies.ts";
import type { PolicyBackend, PolicyTool } from "../../app/policy/policy_backend.ts";
import { policySettings } from "../../app/policy/policy_settings.ts";
import { idleBackendOptions, planSettingsOf } from "../../app/run/plan_settings.ts";
import { HostRegistry } from "../../app/service/host_registry.ts";
import { withPrimaryAddresses } from "../../app/service/primary_addresses.ts";
import { ALL_NODES, serviceCidrsOf } from "../../app/service/service_subscriptions.ts";
import { Services } from "../../app/service/services.ts";
import { syncPeriodsOf } from "../../config/configuration.ts";
import { featureEnabled } from "../../config/feature_gates.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import type { RoutingConfiguration } from "../../config/routing.ts";
import { type JoinedRouting, joinRoutingObjects } from "../../config/routing_objects.ts";
import {
  type InformerSet,
  type ListOptions,
  WITHOUT_DEFINITIONS,
} from "../../kube/informer_set.ts";
import type { ObjectFinding } from "../../kube/manifests/manifest_problem.ts";
import type { ManifestFileStatus } from "../../kube/manifests/manifest_status.ts";
import type { ManifestFileSystem } from "../../kube/manifests/manifests.ts";
import type { Logger } from "../../log/logger.ts";
import { tryParseCidr } from "../../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import type { PodKey, PolicyKey, PolicyPlan } from "../../policy/policy_plan.ts";
import { PolicyPlanner } from "../../policy/policy_planner.ts";
import { PolicyState } from "../../policy/policy_state.ts";
import { type Backend, type BackendMode, MODE_TRAITS } from "../../proxy/backend.ts";
import type { EndpointTracker } from "../../proxy/endpoint_tracker.ts";
import type { AskedHost } from "../../proxy/frontend_owners.ts";
import type { ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ComparisonScope, MachineFacts } from "../../proxy/service_mode.ts";
import {
  namespacedNameOf,
  serviceKey,
  type ServicePortKey,
} from "../../proxy/service_port_name.ts";
import { routingPartsOf } from "../../routing/routing_settings.ts";
import { PlannedRouting, type RoutingInputs } from "../../routing/planned_routing.ts";

export type PlanNodeDependencies = Dependencies & BackendDependencies & {
  /** The files of manifests. @default {the machine's} */
  readonly fileSystem?: ManifestFileSystem;
};

/** The objects of routing, and what a running process knows besides. */
export interface RoutedObjects
  extends Pick<RoutingInputs, "live" | "reports" | "isDraining" | "networks"> {
  readonly informers: InformerSet;
}

/** The plans of a node. */
export interface PlannedNode {
  readonly mode: BackendMode;
  readonly nodeName: string;
  /** Absent if the source has no Node of this name. */
  readonly node: Node | undefined;
  readonly plans: ReadonlyMap<IpFamily, ProxyPlan>;
  /** As {@linkcode EndpointTracker.otherPorts}. */
  readonly otherPorts: (family: IpFamily, key: ServicePortKey) => readonly string[];
  /** Whether the features of the machine are known; otherwise it is assumed to have all. */
  readonly isMachineKnown: boolean;
  readonly informers: InformerSet;
  readonly configuration: Pick<LoadedConfiguration, "proxy" | "relay">;
  /** The machine, as far as a running proxy reported it. */
  readonly machine: (family: IpFamily) => Pick<ComparisonScope, "quarantined" | "serving"> & {
    /** @default {the addresses of the Node} */
    readonly interfaceAddresses?: readonly IpAddress[];
    readonly facts?: MachineFacts;
    /** The address by which its default route sends. */
    readonly primaryAddress?: IpAddress;
    /** Machines whose addresses Services ask for. @default {those of the objects} */
    readonly hosts?: readonly AskedHost[];
  };
  /** Makes a backend that renders and compares, but is never started. */
  readonly createBackend: (family: IpFamily) => Backend;
  /** Reads what addresses and routes are planned from. Absent if routing is disabled. */
  readonly readRouted?: () => Promise<RoutedObjects>;
  /** Keys of all Services, including those without a plan. */
  readonly services: ReadonlySet<string>;
  /** The files of manifests. @default {none} */
  readonly files?: readonly ManifestFileStatus[];
  /** Adds the place of the object, if it is one of a file. @default {no object is} */
  readonly placed?: (finding: ObjectFinding) => ObjectFinding;
  /** What is wrong with the objects. */
  readonly problems: readonly ObjectFinding[];
  /** Whether some objects could not be used. */
  readonly isIncomplete: boolean;
}

/**
 * Plans a node for objects that are complete. Without `machine`, nothing is known of it; the addresses of
 * the machine that this runs on have no meaning here.
 */
export async function planObjects(
  dependencies: PlanNodeDependencies,
  { informers, configuration, mode, nodeName, families, machine = () => ({}) }:
    & Pick<PlannedNode, "informers" | "configuration" | "mode" | "nodeName">
    & { readonly families: readonly IpFamily[]; readonly machine?: PlannedNode["machine"] },
): Promise<PlannedNode> {
  const node: Node | undefined = informers.of(NODE).values().next().value;
  const { proxy, relay: { externalIpRanges, serviceCidrs, manifests } } = configuration;
  const settings = planSettingsOf(proxy, { nodeName, mode, externalIpRanges });
  const problems = new Map<string, ObjectFinding>();
  const plans = new Map<IpFamily, ProxyPlan>();
  const endpoints = new Map<IpFamily, EndpointTracker>();
  for (const family of families) {
    const { interfaceAddresses, hosts, primaryAddress } = machine(family);
    const ofRoutes = primaryAddress === undefined ? [] : [primaryAddress];
    const state = withPrimaryAddresses(settings.nodeState(node), ofRoutes);
    const services = new Services(dependencies, family, settings, {
      node: state,
      allowExternalIps: featureEnabled(proxy, "AllowServiceExternalIPs"),
      areAnnotationsChecked: manifests.length > 0,
    });
    services.onInterfaceAddresses(
      interfaceAddresses ??
        state.addresses.filter((address) => ipFamilyOf(address) === family).toSorted(),
    );
    services.onServiceCidrs(serviceCidrsOf(informers, serviceCidrs, family));
    // The machines that a running process knew are all that count.
    const registry = new HostRegistry((address, host) => {
      if (!hosts && ipFamilyOf(address) === family) services.onHost(address, host);
    });
    for (const { address, ...host } of hosts ?? []) services.onHost(address, host);
    for (const service of informers.of(SERVICE).values()) services.onService(undefined, service);
    for (const slice of informers.of(ENDPOINT_SLICE).values()) {
      services.onSlice(undefined, slice);
      registry.onSlice(undefined, slice);
    }
    for (const each of informers.of(ENDPOINTS).values()) {
      services.onEndpoints(undefined, each);
      registry.onEndpoints(undefined, each);
    }
    const others = MODE_TRAITS[mode].bindsAddresses
      ? informers.subscribe(NODE, ALL_NODES)
      : undefined;
    for (const other of others?.values() ?? []) {
      const { metadata: { name } } = other;
      if (name !== nodeName) registry.onNode(name, other);
    }
    for (const problem of (await services.collectChanges([])).problems) {
      problems.set(problemText(problem), findingOf(problem));
    }
    plans.set(family, services.plan);
    endpoints.set(family, services.endpoints);
  }
  return {
    ...{ mode, nodeName, node, informers, configuration, machine, plans },
    otherPorts: (family, key) => endpoints.get(family)?.otherPorts(key) ?? [],
    isMachineKnown: families.every((family) => machine(family).facts !== undefined),
    createBackend(family) {
      const { facts } = machine(family);
      return (dependencies.backends as Required<BackendTable>)[mode](dependencies, {
        ...idleBackendOptions(configuration, family),
        ...(facts && { facts }),
      });
    },
    services: new Set(
      [...informers.of(SERVICE).values()].map((service) => serviceKey(namespacedNameOf(service))),
    ),
    problems: [...problems.values()],
    isIncomplete: problems.values().some(({ severity }) => severity === "error"),
  };
}

/** As what a tool says of a problem. Without the value of an annotation, everything else of its object is as asked for. */
export function findingOf({ kind, object, ...problem }: ObjectProblem): ObjectFinding {
  const severity = problem.path.startsWith("metadata.annotations") ? "warning" : "error";
  return { ...problem, severity, object: `${kind} ${object}` };
}

/** All Nodes that are known: another subscription is of the own one only. */
export function* nodesOf(informers: InformerSet): Generator<Node, void, void> {
  for (const { spec, informer } of informers) {
    if (spec === NODE as KindSpec) yield* informer.values() as IterableIterator<Node>;
  }
}

/** The policies of objects that were read; `undefined` = no pods and policies are among them. */
export function policyStateOf(...sets: readonly InformerSet[]): PolicyState | undefined {
  const state = new PolicyState();
  for (const informers of sets) {
    if (!informers.kinds.has(NETWORK_POLICY.kind)) continue;
    for (const namespace of informers.of(NAMESPACE).values()) {
      state.setNamespace(namespace.metadata.name, namespace);
    }
    for (const pod of informers.of(POD).values()) state.setPod(objectKey(pod) as PodKey, pod);
    for (const policy of informers.of(NETWORK_POLICY).values()) {
      state.setPolicy(objectKey(policy) as PolicyKey, policy);
    }
    if (!informers.kinds.has(CLUSTER_NETWORK_POLICY.kind)) continue;
    for (const policy of informers.of(CLUSTER_NETWORK_POLICY).values()) {
      state.setClusterPolicy(objectKey(policy) as PolicyKey, policy);
    }
    for (const node of nodesOf(informers)) state.setNode(objectKey(node), node);
  }
  return state.pods.size > 0 || state.policies.size > 0 ? state : undefined;
}

/**
 * Plans the rules of NetworkPolicies of one family, for a data plane that is never started; `undefined` =
 * policies are not enforced. `addresses`: those of the machine, none if it is not known.
 */
export function planPolicies(
  dependencies: Dependencies & { readonly logger: Logger },
  { informers, nodeName, configuration: { proxy } }: PlannedNode,
  family: IpFamily,
  addresses: readonly InterfaceAddress[] = [],
):
  | {
    readonly tool: PolicyTool;
    readonly plan: PolicyPlan;
    readonly backend: PolicyBackend;
    readonly problems: readonly ObjectProblem[];
  }
  | undefined {
  const { networkPolicy } = proxy;
  const state = networkPolicy.enabled ? policyStateOf(informers) : undefined;
  if (state === undefined) return undefined;
  const tool = networkPolicy.mode === "iptables" ? "iptables" : "nftables";
  const node = informers.of(NODE).get(nodeName);
  const settings = policySettings(networkPolicy, { family, node, addresses });
  const planner = new PolicyPlanner(state, { family, nodeName, ...settings });
  planner.update();
  const { syncPeriod: syncPeriodMs } = syncPeriodsOf(proxy, tool);
  const backend = dependencies.policyBackends[tool](dependencies, { family, syncPeriodMs });
  const ofPolicies = [...state.policies.values()].flatMap(({ problems }) => problems);
  return {
    tool,
    plan: planner.plan,
    backend,
    problems: [...ofPolicies, ...planner.takeProblems()],
  };
}

/** The kinds that addresses and routes are planned from. */
export function routedSubscriptions(
  { proxy }: Pick<LoadedConfiguration, "proxy">,
): ReadonlyMap<KindSpec, ListOptions> {
  const needed = routingPartsOf(routingSettingsOf(proxy.routing));
  const kinds = [ROUTED_SERVICE, ROUTED_NODE, ...(needed.has("namespaces") ? [NAMESPACE] : [])];
  return new Map<KindSpec, ListOptions>([
    ...kinds.map((spec) => [spec as KindSpec, {}] as const),
    ...(needed.has("objects") ? ROUTING_OBJECT_KINDS : [])
      .map((spec) => [spec as KindSpec, WITHOUT_DEFINITIONS] as const),
  ]);
}

/** Adds the pools and peers of objects that were read to a configuration. */
export function joinedRouting(
  routing: RoutingConfiguration,
  informers: InformerSet,
): JoinedRouting {
  const { kinds } = informers;
  return joinRoutingObjects(routing, {
    pools: kinds.has(LOAD_BALANCER_POOL.kind) ? informers.of(LOAD_BALANCER_POOL).values() : [],
    peers: kinds.has(BGP_PEER.kind) ? informers.of(BGP_PEER).values() : [],
  });
}

/** Plans addresses and routes; `undefined` if routing is disabled. */
export async function planRouting(planned: PlannedNode): Promise<PlannedRouting | undefined> {
  const { configuration: { proxy }, nodeName, plans } = planned;
  if (!proxy.routing.enabled || planned.readRouted === undefined) return undefined;
  const { informers, ...known } = await planned.readRouted();
  const namespaces = [planned.informers, informers].flatMap((set) =>
    set.kinds.has(NAMESPACE.kind) ? [...set.of(NAMESPACE).values()] : []
  );
  return new PlannedRouting({
    settings: routingSettingsOf(joinedRouting(proxy.routing, informers).routing),
    nodeName,
    nodes: informers.of(ROUTED_NODE).values(),
    services: informers.of(ROUTED_SERVICE).values(),
    namespaces: new Map(namespaces.map(({ metadata: { name, labels } }) => [name, labels ?? {}])),
    plans: [...plans.values()].flatMap(({ services }) => [...services.values()]),
    serviceRanges: [...plans.values()].flatMap(({ shared }) => shared.serviceCidrs),
    clusterCidrs: proxy.clusterCIDR.split(",").flatMap((text) => tryParseCidr(text.trim()) ?? []),
    ...known,
  });
}
