import type { KindSpec } from "../../api/kind.ts";
import { LEASE } from "../../api/kinds/lease.ts";
import { NAMESPACE, type Namespace } from "../../api/kinds/namespace.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE, type RoutedService } from "../../api/kinds/routed_service.ts";
import { changeHandler, type Informer } from "../../kube/informer.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { Cidr } from "../../net/cidr.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import { type RoutingNode, routingNodeOf } from "../../routing/routing_node.ts";
import type { AddressAssigner } from "./address_assigner.ts";
import type { AnnouncedServices } from "./announced_services.ts";
import type { BgpPart } from "./bgp_part.ts";
import type { Layer2Part } from "./layer2_part.ts";
import { LEASE_LABEL } from "./lease_holder.ts";
import type { PodNetworkPart } from "./pod_network_part.ts";
import type { RoutingLeases } from "./routing_leases.ts";

/** The parts that take objects. */
interface RoutedObjectReceivers {
  readonly services: Pick<AnnouncedServices, "serviceRanges" | "touch">;
  readonly assigner: Pick<
    AddressAssigner,
    "onNamespace" | "onService" | "setReserved" | "setTaken"
  >;
  readonly layer2: Pick<Layer2Part, "onNode"> | undefined;
  readonly bgp: Pick<BgpPart, "onNode"> | undefined;
  readonly pods: Pick<PodNetworkPart, "onNode"> | undefined;
  readonly leases: Pick<RoutingLeases, "onLease"> | undefined;
}

interface RoutedObjectsOptions {
  readonly kinds: readonly KindSpec[];
  readonly leaseNamespace: string;
  readonly nodeName: string;
  /** Without an API server, this node is the only one, also before manifests have its Node. */
  readonly isAlone: boolean;
  /** The ranges of all pods; empty = those of the Nodes. */
  readonly clusterCidrs: () => readonly Cidr[];
}

/** Follows the objects of routing, and gives their events to the parts. */
export class RoutedObjects {
  readonly services: Informer<RoutedService>;
  /** Absent if no pool selects namespaces. */
  readonly namespaces: Informer<Namespace> | undefined;
  readonly #options: RoutedObjectsOptions;
  readonly #nodes = new Map<string, RoutingNode>();
  #receivers: RoutedObjectReceivers | undefined;

  /** Subscribes. */
  constructor(
    { informers }: { readonly informers: InformerSet },
    options: RoutedObjectsOptions,
  ) {
    const { kinds, leaseNamespace: namespace } = options;
    this.#options = options;
    this.services = informers.subscribe(
      ROUTED_SERVICE,
      {},
      changeHandler((previous, current) => this.#onService(previous, current)),
    );
    if (kinds.includes(NAMESPACE)) {
      this.namespaces = informers.subscribe(
        NAMESPACE,
        {},
        changeHandler((previous, current) =>
          this.#receivers?.assigner.onNamespace(current ?? previous!)
        ),
      );
    }
    informers.subscribe(
      ROUTED_NODE,
      {},
      changeHandler((previous, current) => {
        const { name } = (current ?? previous!).metadata;
        this.#onNode(name, current && routingNodeOf(current));
      }),
    );
    if (!kinds.includes(LEASE)) return;
    informers.subscribe(
      LEASE,
      { namespace, labelSelector: LEASE_LABEL },
      changeHandler((previous, current) =>
        this.#receivers?.leases?.onLease(current ?? previous!, { isDeleted: current === undefined })
      ),
    );
  }

  /** Gives events to the parts from now on. The run calls it before any object is known. */
  deliverTo(receivers: RoutedObjectReceivers): void {
    this.#receivers = receivers;
    this.setTaken();
    if (this.#options.isAlone) this.#onNode(this.#options.nodeName, undefined);
  }

  /** Addresses of the ranges of pods and cluster IPs would have two owners. */
  setTaken(): void {
    const ofNodes = [...this.#nodes.values()].flatMap(({ podCidrs }) => podCidrs);
    const { assigner, services } = this.#receivers!;
    assigner.setTaken(
      new Map([
        ...[...this.#options.clusterCidrs(), ...ofNodes]
          .map((cidr) => [cidr, "a range of pods"] as const),
        ...services.serviceRanges.map((cidr) => [cidr, "a range of cluster IPs"] as const),
      ]),
    );
  }

  #onService(previous: RoutedService | undefined, current: RoutedService | undefined): void {
    const service = current ?? previous!;
    this.#receivers?.assigner.onService(service);
    const annotations = (each: RoutedService | undefined) =>
      JSON.stringify(each?.metadata.annotations);
    if (annotations(previous) === annotations(current)) return;
    this.#receivers?.services.touch(serviceKey(namespacedNameOf(service)));
  }

  #onNode(name: string, known: RoutingNode | undefined): void {
    const { isAlone, nodeName } = this.#options;
    const node = known ?? (isAlone && name === nodeName ? aloneNode(name) : undefined);
    const before = this.#nodes.get(name);
    // The kubelet writes the Node every few minutes, mostly other fields.
    if (JSON.stringify(before) === JSON.stringify(node)) return;
    if (node) this.#nodes.set(name, node);
    else this.#nodes.delete(name);
    this.#receivers?.layer2?.onNode(name, node);
    this.#receivers?.bgp?.onNode(name, node);
    this.#receivers?.pods?.onNode(name, node);
    if (`${before?.podCidrs}` !== `${node?.podCidrs}`) this.setTaken();
    if (`${before?.addresses}` === `${node?.addresses}`) return;
    const reserved = new Map<IpAddress, string>();
    for (const { addresses, name } of this.#nodes.values()) {
      for (const address of addresses) reserved.set(address, `node ${name}`);
    }
    this.#receivers?.assigner.setReserved(reserved);
  }
}

/** The node of a run without a cluster, until manifests have a Node. */
function aloneNode(name: string): RoutingNode {
  return { name, labels: {}, annotations: {}, addresses: [], primary: {}, podCidrs: [] };
}
