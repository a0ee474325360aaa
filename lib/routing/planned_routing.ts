import type { RoutedNode } from "../api/kinds/routed_node.ts";
import type { RoutedService } from "../api/kinds/routed_service.ts";
import type { Cidr } from "../net/cidr.ts";
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";
import { SetIndex } from "../net/set_index.ts";
import type { Labels } from "../policy/label_selector.ts";
import type { ServicePlan } from "../proxy/service_plan.ts";
import { namespacedNameOf, type ServiceKey, serviceKey } from "../proxy/service_port_name.ts";
import { AddressAllocator } from "./address_allocator.ts";
import { addressRequestOf, foreignClass } from "./address_request.ts";
import { announcedServiceOf } from "./announced_service.ts";
import { BgpPlanner } from "./bgp_planner.ts";
import type { MemberReport } from "./layer2_member.ts";
import { Layer2Owners } from "./layer2_owner.ts";
import { planPodNetwork, type PodNetworkPlan } from "./pod_network_plan.ts";
import { type RoutingNode, routingNodeOf } from "./routing_node.ts";
import type { RoutingSettings } from "./routing_settings.ts";

/** The state of a cluster that addresses and routes of a node depend on. */
export interface RoutingInputs {
  readonly settings: RoutingSettings;
  readonly nodeName: string;
  readonly nodes: Iterable<RoutedNode>;
  readonly services: Iterable<RoutedService>;
  readonly namespaces: ReadonlyMap<string, Labels>;
  /** Of both families. */
  readonly plans: Iterable<ServicePlan>;
  /** The ranges of cluster IPs. */
  readonly serviceRanges: readonly Cidr[];
  readonly clusterCidrs: readonly Cidr[];
  /** The networks of the node's interfaces; empty = unknown. */
  readonly networks: readonly Cidr[];
  /** The nodes with a valid Lease. @default {every Node, because none is known} */
  readonly live?: ReadonlySet<string> | undefined;
  /** What these nodes say of themselves. @default {nothing} */
  readonly reports?: ReadonlyMap<string, MemberReport>;
  /** @default {false} */
  readonly isDraining?: boolean;
}

/** A Service that has an address in its status. */
export interface AddressHolder {
  readonly service: ServiceKey;
  /** Why it does not have what it asks for, in words. */
  readonly refusals: readonly string[];
}

/** The addresses and routes of a node, planned once for the tools. */
export class PlannedRouting {
  readonly settings: RoutingSettings;
  readonly nodeName: string;
  /** Whether the source knew which nodes run kube-relay. */
  readonly areLeasesKnown: boolean;
  /** Absent if BGP is disabled. */
  readonly bgp: BgpPlanner | undefined;
  /** Absent if kube-relay does nothing for the network of pods, or the own Node is not known. */
  readonly podNetwork: PodNetworkPlan | undefined;
  readonly owners: Layer2Owners;
  readonly #allocator: AddressAllocator;
  readonly #nodesAt = new Map<IpAddress, string>();
  readonly #holders = new SetIndex<IpAddress, ServiceKey>();
  readonly #foreign = new Map<ServiceKey, string>();
  readonly #statuses = new Map<ServiceKey, readonly IpAddress[]>();

  constructor(inputs: RoutingInputs) {
    const { settings, nodeName, clusterCidrs } = inputs;
    const { pools, bgp } = settings;
    this.settings = settings;
    this.nodeName = nodeName;
    this.areLeasesKnown = inputs.live !== undefined;
    this.owners = new Layer2Owners(pools);
    this.#allocator = new AddressAllocator(pools);
    this.bgp = bgp && new BgpPlanner({ settings: bgp, pools, nodeName, clusterCidrs });
    const nodes = [...inputs.nodes].map(routingNodeOf);
    this.#takeNodes(nodes, inputs);
    const own = nodes.find(({ name }) => name === nodeName);
    this.podNetwork = settings.podNetwork && own &&
      planPodNetwork({ ...inputs, settings: settings.podNetwork, own, nodes });
    this.#takeServices(inputs);
    this.bgp?.setServiceRanges(inputs.serviceRanges);
    this.bgp?.setNetworks(inputs.networks);
    this.bgp?.setDraining(inputs.isDraining ?? false);
    this.owners.update();
    this.bgp?.update();
    this.#allocator.update();
  }

  /** The addresses in the status of each Service. */
  get statuses(): ReadonlyMap<ServiceKey, readonly IpAddress[]> {
    return this.#statuses;
  }

  /** The addresses that a Service would have; `undefined` = its status is left alone. */
  assignedTo(service: ServiceKey): readonly IpAddress[] | undefined {
    return this.#allocator.assignment(service)?.addresses;
  }

  /** The Services that have an address in their status, or would get it. */
  holdersOf(address: IpAddress): readonly AddressHolder[] {
    const { services } = this.#allocator.addressUse(address);
    const keys = new Set([...this.#holders.at(address), ...services]);
    return [...keys].sort().map((service) => ({ service, refusals: this.refusalsOf(service) }));
  }

  /** The node that has an address of its own. */
  nodeAt(address: IpAddress): string | undefined {
    return this.#nodesAt.get(address);
  }

  /** Why a Service does not have what it asks for. */
  refusalsOf(service: ServiceKey): readonly string[] {
    const foreign = this.#foreign.get(service);
    if (foreign !== undefined) return [foreign];
    return this.#allocator.assignment(service)?.refusals.map(({ message }) => message) ?? [];
  }

  #takeNodes(
    nodes: readonly RoutingNode[],
    { live, reports = new Map() }: Pick<RoutingInputs, "live" | "reports">,
  ): void {
    const names = new Set<string>();
    for (const node of nodes) {
      names.add(node.name);
      this.owners.setNode(node.name, node);
      this.bgp?.setNode(node.name, node);
      this.#allocator.setNode(node.name, node.addresses);
      for (const address of node.addresses) this.#nodesAt.set(address, node.name);
    }
    for (const [name, report] of reports) this.owners.setReport(name, report);
    this.owners.setLive(live ?? names);
  }

  #takeServices({ services, namespaces, plans, settings }: RoutingInputs): void {
    for (const [name, labels] of namespaces) this.#allocator.setNamespace(name, labels);
    const byService = Map.groupBy(plans, ({ name }) => serviceKey(name));
    for (const service of services) {
      const key = serviceKey(namespacedNameOf(service));
      this.#allocator.setService(key, addressRequestOf(service, settings));
      const foreign = foreignClass(service, settings);
      if (foreign !== undefined) this.#foreign.set(key, foreign);
      const announced = announcedServiceOf(byService.get(key) ?? [], service.metadata.annotations);
      this.owners.setService(key, announced);
      this.bgp?.setService(key, announced);
      const addresses = (service.status?.loadBalancer?.ingress ?? []).flatMap(({ ip }) =>
        tryParseIpAddress(ip ?? "") ?? []
      );
      this.#statuses.set(key, addresses);
      for (const address of addresses) this.#holders.add(address, key);
    }
  }
}
