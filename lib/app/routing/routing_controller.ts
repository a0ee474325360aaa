/**
 * The controller of addresses and routes.
 *
 * @module
 */
import type { KindSpec, KubeObject } from "../../api/kind.ts";
import { LEASE, type Lease } from "../../api/kinds/lease.ts";
import { NAMESPACE, type Namespace } from "../../api/kinds/namespace.ts";
import { ROUTED_NODE, type RoutedNode } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE, type RoutedService } from "../../api/kinds/routed_service.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import type {
  Controller,
  ControllerKind,
  ControllerStatus,
  ControlRoutes,
  DumpSection,
} from "../../controller/controller.ts";
import type { RunnerActivity } from "../../controller/sync_runner.ts";
import type { TaskGroup } from "../../controller/task_group.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import type { InformerHandler } from "../../kube/informer.ts";
import { FileManifestSource } from "../../kube/manifests/manifests.ts";
import { messageOf } from "../../log/message_of.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { type Cidr, tryParseCidr } from "../../net/cidr.ts";
import type { IpAddress } from "../../net/ip_address.ts";
import type { Timer } from "../../os/clock.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import { poolOf } from "../../routing/address_pool.ts";
import { type RoutingNode, routingNodeOf } from "../../routing/routing_node.ts";
import { TUNNEL_PREFIX } from "../../routing/plan_pod_network.ts";
import type { RoutingSettings } from "../../routing/routing_settings.ts";
import type { ControllerParts } from "../controllers.ts";
import { ControllerSource } from "../run/controller_source.ts";
import { AddressAssigner } from "./address_assigner.ts";
import { AnnouncedServices } from "./announced_services.ts";
import { BgpPart } from "./bgp_part.ts";
import { Layer2Part } from "./layer2_part.ts";
import { PodNetworkPart, removePodNetwork } from "./pod_network_part.ts";
import { LEASE_LABEL } from "./lease_holder.ts";
import { RoutingLeases } from "./routing_leases.ts";
import { routingAccess, routingKinds, routingKubeconfigOf, usesLayer2 } from "./routing_access.ts";
import { routingRoutes } from "../explain/routing_questions.ts";
import { poolUse } from "../../routing/address_pool.ts";
import {
  addressesInUse,
  bgpSummary,
  dumpedRouting,
  podSummary,
  routingFacts,
  type ShownRouting,
} from "./routing_status.ts";

/** The first sync waits this long for the rules of Services. */
const SERVICES_WAIT_MS = 10_000;

/** Assigns addresses to Services of type LoadBalancer, and announces addresses and routes. */
export class RoutingController implements Controller {
  readonly name = "routing";
  readonly kinds: readonly ControllerKind[];
  readonly routes: ControlRoutes;
  /** The parts, for the tools. */
  readonly settings: RoutingSettings;
  readonly services: AnnouncedServices;
  readonly assigner: AddressAssigner;
  readonly layer2: Layer2Part | undefined;
  readonly bgp: BgpPart | undefined;
  readonly pods: PodNetworkPart | undefined;
  readonly informers = new InformerSet();
  readonly #parts: ControllerParts;
  readonly #source: ControllerSource | undefined;
  readonly #leases: RoutingLeases | undefined;
  readonly #nodes = new Map<string, RoutingNode>();
  #networks: readonly Cidr[] = [];
  #isOpen = false;
  #waiting: Timer | undefined;

  constructor(parts: ControllerParts) {
    const { configuration: { proxy, relay }, nodeName } = parts;
    const { informers } = this;
    const settings = this.settings = routingSettingsOf(proxy.routing);
    const isAlone = relay.manifests.length > 0;
    const { forwardsItself } = MODE_TRAITS[parts.configuration.mode];
    this.#parts = parts;
    this.kinds = routingKinds(settings).filter((spec) => !isAlone || spec !== LEASE)
      .map((spec) => ({ spec, informers, isInSection: spec !== NAMESPACE }));
    const services = this.services = new AnnouncedServices({
      informers,
      // In a network of the node, userspace mode takes only addresses that are local already.
      isExempt: (address) =>
        forwardsItself && poolOf(settings.pools, address)?.announce === "layer2",
    });
    const namespaces = this.#isFollowed(NAMESPACE)
      ? informers.subscribe(NAMESPACE, {}, this.#namespaceHandler())
      : undefined;
    this.assigner = new AddressAssigner({ ...parts, events: parts.startUp.events }, {
      ...{ settings, namespaces },
      services: informers.subscribe(ROUTED_SERVICE, {}, this.#serviceHandler()),
      onWritten: (outcome) => parts.metrics.routing.statusWritten(outcome),
    });
    const { routingBackends: routing } = parts;
    const made = routing && { ...parts, services, routing };
    this.layer2 = made && usesLayer2(settings)
      ? new Layer2Part(made, { settings, isAlone })
      : undefined;
    this.bgp = made && settings.bgp
      ? new BgpPart(made, { settings, bgp: settings.bgp, clusterCidrs: cidrsOf(proxy.clusterCIDR) })
      : undefined;
    const { podNetwork } = settings;
    this.pods = made && podNetwork
      ? new PodNetworkPart(made, { podNetwork, clusterCidrs: cidrsOf(proxy.clusterCIDR) })
      : undefined;
    services.follow(() => {}, () => this.#setTaken());
    this.#setTaken();
    informers.subscribe(ROUTED_NODE, {}, this.#nodeHandler());
    this.routes = routingRoutes({
      bgp: this.bgp,
      pods: this.pods,
      held: () => this.#held,
      layer2: () => {
        const owned = new Set(
          this.layer2?.families.flatMap(({ addresses }) => [...addresses.keys()]),
        );
        const known = this.layer2?.view().map(({ address }) => address) ?? [];
        return { owned, others: known.filter((address) => !owned.has(address)) };
      },
      interfaceAddresses: () => parts.network.interfaceAddresses(),
    });
    parts.serviceObservers.push(services, { synced: () => this.#openIfReady() });
    if (isAlone) {
      this.#onNode(nodeName, aloneNode(nodeName));
      return;
    }
    this.#source = new ControllerSource(parts, {
      ...{ configuration: parts.configuration, informers },
      kubeconfig: routingKubeconfigOf(proxy),
      needed: routingAccess(settings),
    });
    parts.source.reportWith(this.#source);
    if (!this.#isFollowed(LEASE)) return;
    this.#leases = new RoutingLeases({ ...parts, assigner: this.assigner, layer2: this.layer2 }, {
      ...{ settings, nodeName },
    });
    const selected = { namespace: settings.leaseNamespace, labelSelector: LEASE_LABEL };
    informers.subscribe(LEASE, selected, this.#leaseHandler());
  }

  get activity(): readonly RunnerActivity[] {
    return this.#loops.map(({ activity }) => activity);
  }

  async start(tasks: TaskGroup): Promise<void> {
    const { configuration: { relay }, clock, routingBackends } = this.#parts;
    await Promise.all(this.#loops.map((loop) => loop.start()));
    if (!this.pods && routingBackends) {
      tasks.run("former pod network", () => removePodNetwork(this.#parts, routingBackends));
    }
    const source = this.#source;
    if (!source) {
      const dependencies = { clock, logger: SILENT_LOGGER };
      const { informers } = this;
      // The common source reports the problems of the files.
      const manifests = new FileManifestSource(dependencies, { paths: relay.manifests, informers });
      tasks.run("routing source", (signal) => manifests.run(signal));
      return;
    }
    tasks.run("routing source", async (signal) => {
      let claiming: Promise<void> | undefined;
      await source.run(signal, {
        ...(this.#leases && { keepOpen: this.#leases.released }),
        onGranted: (client) => claiming = this.#leases?.run(client, signal),
      });
      await claiming;
    });
  }

  open(): void {
    this.#isOpen = true;
    // Services may have endpoints that only these routes lead to.
    this.pods?.loop.open();
    this.#waiting = this.#parts.clock.setTimer(SERVICES_WAIT_MS, () => this.#openLoops());
    this.#openIfReady();
  }

  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    const networks = [...new Set(addresses.flatMap(({ network }) => network ?? []))].sort();
    if (`${networks}` === `${this.#networks}`) return;
    this.#networks = networks;
    this.bgp?.onNetworks(networks);
    this.pods?.onNetworks(networks);
  }

  ownsAddress({ address, interfaceName }: InterfaceAddress): boolean {
    return this.layer2?.ownsAddress(address) === true || interfaceName.startsWith(TUNNEL_PREFIX);
  }

  /**
   * Gives addresses of layer 2 up, so that other nodes take them over. Sessions and routes of BGP stay,
   * as the rules of Services do, unless kube-relay forwards by itself.
   */
  async stop(): Promise<void> {
    const { configuration: { mode }, logger } = this.#parts;
    this.#waiting?.cancel();
    const failed = (error: unknown) =>
      logger.error("Cannot give load balancer addresses up", { error });
    await Promise.all([
      this.layer2?.leave().catch(failed).then(() => this.#leases?.release()),
      MODE_TRAITS[mode].forwardsItself ? this.bgp?.withdraw().catch(failed) : this.bgp?.loop.stop(),
      this.layer2 ? undefined : this.#leases?.release(),
      this.pods?.loop.stop(),
    ]);
  }

  async drain(timeoutMs: number): Promise<void> {
    await this.bgp?.backend.drain(timeoutMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.layer2?.[Symbol.asyncDispose]();
    await this.bgp?.[Symbol.asyncDispose]();
    await this.pods?.[Symbol.asyncDispose]();
  }

  async status({ brief }: { readonly brief: boolean }): Promise<ControllerStatus> {
    const shown = await this.#shown({ brief });
    const { bgp, layer2, pods } = this;
    const families = [
      ...(layer2?.families ?? []).map(({ loop, backend }) => {
        const { held, announcing } = backend.inspect();
        const problem = announcing === undefined ? "" : `; moves are not announced: ${announcing}`;
        return loop.status(`layer 2, answers for ${held.length}${problem}`);
      }),
      ...(bgp ? [{ ...bgp.loop.status(bgpSummary(bgp.plan)), controller: "bgp" as const }] : []),
      ...(pods
        ? [{ ...pods.loop.status(podSummary(pods.plan)), controller: "pod-network" as const }]
        : []),
    ];
    return { controller: this.name, families, facts: routingFacts(shown) };
  }

  async collectMetrics(): Promise<void> {
    const { metrics: { routing } } = this.#parts;
    for (const { family, backend } of this.layer2?.families ?? []) {
      routing.setLayer2Addresses(family, backend.inspect().held.length);
    }
    const { bgp, settings: { pools }, informers } = this;
    routing.setPools(poolUse(pools, addressesInUse(informers.of(ROUTED_SERVICE).values())));
    if (this.#leases) routing.setRefusals(this.assigner.refused?.length);
    routing.setPodRoutes(this.pods?.plan?.routes ?? []);
    if (!bgp) return;
    const { plan } = bgp;
    routing.setAnnounced(plan);
    routing.setSessions(plan ? await bgp.backend.sessions(plan).catch(() => []) : []);
  }

  dumpInputs(): DumpSection {
    const { informers, bgp, layer2 } = this;
    const { current, nodeName } = this.#parts;
    return dumpedRouting({
      routing: current.proxy.routing,
      nodeName,
      nodes: informers.of(ROUTED_NODE),
      services: informers.of(ROUTED_SERVICE),
      live: layer2?.live,
      isDraining: bgp?.isDraining ?? false,
      networks: this.#networks,
    });
  }

  get #held() {
    return (this.layer2?.families ?? []).flatMap(({ backend }) => backend.inspect().held);
  }

  get #loops() {
    return [
      ...(this.layer2?.families ?? []).map(({ loop }) => loop),
      ...(this.bgp ? [this.bgp.loop] : []),
      ...(this.pods ? [this.pods.loop] : []),
    ];
  }

  async #shown({ brief }: { readonly brief: boolean }): Promise<ShownRouting> {
    const { bgp, layer2, pods, settings, informers } = this;
    const plan = brief ? undefined : bgp?.plan;
    const sessions = plan && await bgp!.backend.sessions(plan).catch((error) => messageOf(error));
    return {
      settings,
      services: informers.of(ROUTED_SERVICE),
      leases: this.#leases && {
        node: this.#leases.node,
        allocator: this.#leases.allocator,
        writing: this.assigner.problem,
      },
      refused: brief ? [] : this.assigner.refused ?? [],
      owned: brief ? [] : layer2?.view() ?? [],
      ...(plan && { bgp: { plan, sessions: sessions ?? [] } }),
      pods: brief ? undefined : pods?.plan,
    };
  }

  /** Addresses of these ranges would have two owners. */
  #setTaken(): void {
    const pods = cidrsOf(this.#parts.configuration.proxy.clusterCIDR);
    const ofNodes = [...this.#nodes.values()].flatMap(({ podCidrs }) => podCidrs);
    this.assigner.setTaken(
      new Map([
        ...[...pods, ...ofNodes].map((cidr) => [cidr, "a range of pods"] as const),
        ...this.services.serviceRanges.map((cidr) => [cidr, "a range of cluster IPs"] as const),
      ]),
    );
  }

  #isFollowed(spec: KindSpec): boolean {
    return this.kinds.some((kind) => kind.spec === spec);
  }

  /** Until the rules of all Services are in force, an announcement would be too early. */
  #openIfReady(): void {
    const { complete } = this.services;
    if (this.#parts.configuration.families.every((each) => complete.has(each))) this.#openLoops();
  }

  #openLoops(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#waiting?.cancel();
    for (const loop of this.#loops) loop.open();
  }

  #serviceHandler(): InformerHandler<RoutedService> {
    return handlerOf((previous, current) => {
      const service = current ?? previous!;
      this.assigner.onService(service);
      const annotations = (each: RoutedService | undefined) =>
        JSON.stringify(each?.metadata.annotations);
      if (annotations(previous) === annotations(current)) return;
      this.services.touch(serviceKey(namespacedNameOf(service)));
    });
  }

  #namespaceHandler(): InformerHandler<Namespace> {
    return handlerOf((previous, current) => this.assigner.onNamespace(current ?? previous!));
  }

  #nodeHandler(): InformerHandler<RoutedNode> {
    return handlerOf((previous, current) => {
      const { name } = (current ?? previous!).metadata;
      const isAlone = !this.#source && name === this.#parts.nodeName;
      this.#onNode(name, current ? routingNodeOf(current) : isAlone ? aloneNode(name) : undefined);
    });
  }

  #leaseHandler(): InformerHandler<Lease> {
    return handlerOf((previous, current) =>
      this.#leases?.onLease(current ?? previous!, { isDeleted: current === undefined })
    );
  }

  #onNode(name: string, node: RoutingNode | undefined): void {
    const before = this.#nodes.get(name);
    // The kubelet writes the Node every few minutes, mostly other fields.
    if (JSON.stringify(before) === JSON.stringify(node)) return;
    if (node) this.#nodes.set(name, node);
    else this.#nodes.delete(name);
    this.layer2?.onNode(name, node);
    this.bgp?.onNode(name, node);
    this.pods?.onNode(name, node);
    if (`${before?.podCidrs}` !== `${node?.podCidrs}`) this.#setTaken();
    if (`${before?.addresses}` === `${node?.addresses}`) return;
    const reserved = new Map<IpAddress, string>();
    for (const { addresses, name } of this.#nodes.values()) {
      for (const address of addresses) reserved.set(address, `node ${name}`);
    }
    this.assigner.setReserved(reserved);
  }
}

/** Calls one function for each event. */
function handlerOf<T extends KubeObject>(
  take: (previous: T | undefined, current: T | undefined) => void,
): InformerHandler<T> {
  return {
    onAdd: (object) => take(undefined, object),
    onUpdate: take,
    onDelete: (object) => take(object, undefined),
    onSynced() {},
  };
}

/** The node of a run without a cluster, until manifests have a Node. */
function aloneNode(name: string): RoutingNode {
  return { name, labels: {}, annotations: {}, addresses: [], primary: {}, podCidrs: [] };
}

function cidrsOf(text: string): readonly Cidr[] {
  return text.split(",").flatMap((each) => tryParseCidr(each.trim()) ?? []);
}
