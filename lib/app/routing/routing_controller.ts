import { LEASE } from "../../api/kinds/lease.ts";
import { NAMESPACE } from "../../api/kinds/namespace.ts";
import type { KindSpec } from "../../api/kind.ts";
import { ROUTED_NODE } from "../../api/kinds/routed_node.ts";
import { ROUTED_SERVICE, type RoutedService } from "../../api/kinds/routed_service.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import { DEFAULT_CNI_CONFIG } from "../../config/routing.ts";
import { routingSettingsOf } from "../../config/parse_routing.ts";
import type {
  Controller,
  ControllerKind,
  ControllerStatus,
  LoopActivity,
} from "../../engine/controller.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import { changeHandler } from "../../kube/informer.ts";
import type { KubeClient } from "../../kube/client.ts";
import { LinkedAbort } from "../../kube/linked_abort.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import { FileManifestSource } from "../../kube/manifests/manifests.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { type Cidr, tryParseCidr } from "../../net/cidr.ts";
import { IP_FAMILIES } from "../../net/ip_address.ts";
import type { Timer } from "../../os/clock.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { namespacedNameOf, serviceKey } from "../../proxy/service_port_name.ts";
import { poolOf } from "../../routing/address_pool.ts";
import {
  routingPartsOf,
  type RoutingSettings,
  withoutSessions,
} from "../../routing/routing_settings.ts";
import { TUNNEL_PREFIX } from "../../routing/pod_network_plan.ts";
import type { SecretKey } from "../../routing/bgp_plan.ts";
import { type RoutingNode, routingNodeOf } from "../../routing/routing_node.ts";
import type { ControllerDefinition, ControllerParts } from "../controllers.ts";
import { ControllerSource } from "../run/controller_source.ts";
import { AddressAssigner } from "./address_assigner.ts";
import { AnnouncedServices } from "./announced_services.ts";
import { SecretReader } from "./secret_reader.ts";
import { Layer2Part } from "./layer2_part.ts";
import { LEASE_LABEL } from "./lease_holder.ts";
import { RoutingLeases } from "./routing_leases.ts";
import type { Layer2Backend } from "./routing_backends.ts";
import { ObjectSettings } from "./object_settings.ts";
import { routingAccess, routingKinds } from "./routing_access.ts";
import { collectRoutingMetrics, routingStatus } from "./routing_status.ts";
import { whenSynced } from "../change_listener.ts";
import {
  BgpPart,
  type BgpPartSettings,
  PodNetworkPart,
  removePodNetwork,
} from "./routing_parts.ts";

/** The first sync waits this long for the rules of Services. */
const SERVICES_WAIT_MS = 10_000;

/** Assigns addresses to Services of type LoadBalancer, and announces addresses and routes. */
export class RoutingController implements Controller {
  readonly name = "routing";
  readonly kinds: readonly ControllerKind[];
  /** The parts, for the tools. */
  readonly services: AnnouncedServices;
  readonly assigner: AddressAssigner;
  readonly layer2: Layer2Part | undefined;
  readonly bgp: BgpPart | undefined;
  readonly pods: PodNetworkPart | undefined;
  readonly objects: ObjectSettings | undefined;
  readonly informers = new InformerSet();
  readonly #parts: ControllerParts;
  /** Without an API server, this node is the only one. */
  readonly #isAlone: boolean;
  readonly #nodes = new Map<string, RoutingNode>();
  readonly #source: ControllerSource | undefined;
  readonly #leases: RoutingLeases | undefined;
  readonly #secrets: SecretReader;
  #configuration: AppliedConfiguration;
  #networks: readonly Cidr[] = [];
  #isOpen = false;
  /** Whether the rules of all Services are in force, or took too long. */
  #hasServices = false;
  /** Resolves once everything is known that decides about addresses. */
  readonly #known = Promise.withResolvers<void>();
  #waiting: Timer | undefined;

  constructor(parts: ControllerParts) {
    const { configuration: { proxy, relay }, nodeName, routingBackends: routing } = parts;
    const { informers } = this;
    const { settings, clusterCidrs } = this.#configuration = appliedConfiguration(proxy);
    const isAlone = relay.manifests.length > 0;
    this.#secrets = new SecretReader(parts.clock, settings.leaseNamespace);
    const { forwardsItself } = MODE_TRAITS[parts.configuration.mode];
    const kinds = routingKinds(settings).filter((spec) => !isAlone || spec !== LEASE);
    this.#parts = parts;
    this.#isAlone = isAlone;
    this.kinds = kinds.map((spec) => ({ spec, informers }));
    const services = this.services = new AnnouncedServices({
      informers,
      // In a network of the node, userspace mode takes only addresses that are local already.
      isExempt: (address) =>
        forwardsItself &&
        poolOf(this.#configuration.settings.pools, address)?.announce === "layer2",
    });
    if (settings.objects) {
      this.objects = new ObjectSettings(parts, {
        ...{ informers, nodeName },
        onChange: () => this.#onObjects(),
        isNode: (name) => this.#nodes.has(name),
        poolProblems: () => this.assigner.poolProblems,
      });
    }
    this.assigner = new AddressAssigner({ ...parts, events: parts.startUp.events }, {
      settings,
      ...this.#subscribe(kinds),
      onPoolProblems: () => this.objects?.setPools(this.#configuration.settings.pools),
      onWritten: (outcome) => {
        parts.metrics.its["kube_relay_routing_status_writes_total"].inc({ outcome });
      },
    });
    const readSecret = (key: SecretKey) => this.#secrets.read(key);
    const made = routing && { ...parts, services, routing, readSecret };
    if (made && routingPartsOf(settings).has("layer2")) {
      this.layer2 = new Layer2Part(made, settings, isAlone);
    }
    const bgpSettings = bgpSettingsOf(this.#configuration);
    if (made && bgpSettings) this.bgp = new BgpPart(made, bgpSettings);
    if (kinds.includes(LEASE)) {
      this.#leases = new RoutingLeases(parts, settings, {
        lead: async (client, signal) => {
          using work = new LinkedAbort(signal);
          const writing = this.objects?.lead(client, work.signal);
          try {
            await this.assigner.lead(client, signal);
          } finally {
            work.abort(undefined);
            await writing;
          }
        },
      }, this.layer2);
    }
    const { podNetwork } = settings;
    if (made && podNetwork) this.pods = new PodNetworkPart(made, podNetwork, clusterCidrs);
    this.#setTaken();
    // Also before manifests have the Node.
    if (isAlone) this.#onNode(nodeName, undefined);
    services.follow(() => {}, () => this.#setTaken());
    parts.serviceListeners.push(services, whenSynced(() => this.#openIfReady()));
    if (isAlone) return;
    const { kubeconfig } = proxy.routing;
    const needed = routingAccess(settings);
    this.#source = new ControllerSource(parts, parts.configuration, kubeconfig, informers, needed);
    parts.sources.push(this.#source);
  }

  /** The addresses that this node holds, by interface. */
  get held(): ReturnType<Layer2Backend["inspect"]>["held"] {
    return (this.layer2?.families ?? []).flatMap(({ backend }) => backend.inspect().held);
  }

  /** The networks of the node's interfaces. */
  get networks(): readonly Cidr[] {
    return this.#networks;
  }

  get activity(): readonly LoopActivity[] {
    return this.#loops.map(({ activity }) => activity);
  }

  async start(tasks: TaskGroup): Promise<void> {
    const { configuration: { relay }, clock, routingBackends } = this.#parts;
    await Promise.all(this.#loops.map((loop) => loop.start()));
    if (!this.pods && routingBackends) {
      tasks.run(
        "former pod network",
        (signal) => removePodNetwork(this.#parts, routingBackends, signal),
      );
    }
    const { bgp, layer2, pods } = this;
    if (bgp) tasks.run("BGP daemon", (signal) => bgp.watch(signal));
    if (pods) tasks.run("links", (signal) => pods.watch(signal));
    if (layer2) {
      tasks.run("layer 2 interfaces", (signal) => layer2.watchLinks(signal));
      tasks.run("layer 2 conflicts", (signal) => layer2.watchConflicts(signal));
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
        onGranted: (client) => claiming = this.#work(client, signal),
      });
      await claiming;
    });
  }

  open(): void {
    this.#isOpen = true;
    // Services may have endpoints that only these routes lead to.
    this.pods?.loop.open();
    this.#waiting = this.#parts.clock.setTimer(SERVICES_WAIT_MS, () => {
      this.#hasServices = true;
      this.#openIfReady();
    });
    this.#openIfReady();
  }

  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    const networks = [...new Set(addresses.flatMap(({ network }) => network ?? []))].sort();
    if (`${networks}` === `${this.#networks}`) return;
    this.#networks = networks;
    this.bgp?.onNetworks(networks);
    this.pods?.onNetworks(networks);
  }

  /** Sessions and addresses that the new settings have too stay as they are. */
  onConfiguration(): void {
    const before = this.#configuration;
    const configuration = appliedConfiguration(this.#parts.current.proxy, this.objects);
    if (configuration.text === before.text) return;
    this.#configuration = configuration;
    const { settings } = configuration;
    this.services.onExemptions();
    this.assigner.setSettings(settings);
    this.objects?.setPools(settings.pools);
    this.#setTaken();
    this.layer2?.setSettings(settings);
    // BIRD would go on announcing after BGP was disabled.
    const [was, is] = [bgpSettingsOf(before), bgpSettingsOf(configuration)];
    const bgp = is ?? (was && { ...was, settings: withoutSessions(was.settings) });
    if (bgp) this.bgp?.setSettings(bgp);
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
    this.objects?.stop();
    const failed = (error: unknown) =>
      logger.error("Cannot give load balancer addresses up", { error });
    await Promise.all([
      this.layer2?.leave().catch(failed).then(() => this.#leases?.release()),
      MODE_TRAITS[mode].forwardsItself ? this.bgp?.withdraw().catch(failed) : this.bgp?.loop.stop(),
      this.layer2 ? undefined : this.#leases?.release(),
      this.pods?.loop.stop(),
    ]);
  }

  /** Sessions and routes stay. */
  drain(): Promise<void> {
    return Promise.resolve();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.layer2?.[Symbol.asyncDispose]();
    await this.bgp?.[Symbol.asyncDispose]();
    await this.pods?.[Symbol.asyncDispose]();
  }

  status(options: { readonly brief: boolean }): Promise<ControllerStatus> {
    return routingStatus(this.#reported, options);
  }

  collectMetrics(): Promise<void> {
    return collectRoutingMetrics(this.#parts.metrics, this.#reported);
  }

  #subscribe(kinds: readonly KindSpec[]) {
    const { informers } = this;
    const onSynced = () => this.#onSynced();
    const services = informers.subscribe(ROUTED_SERVICE, {}, {
      ...changeHandler((previous, current) => this.#onService(previous, current)),
      onSynced,
    });
    // Absent if no pool selects namespaces.
    const namespaces = kinds.includes(NAMESPACE)
      ? informers.subscribe(NAMESPACE, {}, {
        ...changeHandler((previous, current) => this.assigner.onNamespace(current ?? previous!)),
        onSynced,
      })
      : undefined;
    informers.subscribe(ROUTED_NODE, {}, {
      ...changeHandler((previous, current) =>
        this.#onNode((current ?? previous!).metadata.name, current && routingNodeOf(current))
      ),
      onSynced,
    });
    if (kinds.includes(LEASE)) {
      const { leaseNamespace: namespace } = this.#configuration.settings;
      informers.subscribe(
        LEASE,
        { namespace, labelSelector: LEASE_LABEL },
        changeHandler((previous, current) => {
          const isDeleted = current === undefined;
          this.#leases?.onLease(current ?? previous!, { isDeleted });
        }),
      );
    }
    return { services, namespaces };
  }

  #onService(previous: RoutedService | undefined, current: RoutedService | undefined): void {
    const service = current ?? previous!;
    this.assigner.onService(service);
    this.objects?.onService(previous, current);
    const annotations = (each: RoutedService | undefined) =>
      JSON.stringify(each?.metadata.annotations);
    if (annotations(previous) === annotations(current)) return;
    this.services.touch(serviceKey(namespacedNameOf(service)));
  }

  #onNode(name: string, known: RoutingNode | undefined): void {
    const isOnly = this.#isAlone && name === this.#parts.nodeName;
    const node = known ?? (isOnly ? aloneNode(name) : undefined);
    const before = this.#nodes.get(name);
    // The kubelet writes the Node every few minutes, mostly other fields.
    if (JSON.stringify(before) === JSON.stringify(node)) return;
    if (node) this.#nodes.set(name, node);
    else this.#nodes.delete(name);
    this.layer2?.onNode(name, node);
    this.bgp?.onNode(name, node);
    this.pods?.onNode(name, node);
    this.assigner.setNode(name, node);
  }

  #onObjects(): void {
    if (!this.objects!.synced) return;
    this.onConfiguration();
    this.#onSynced();
    this.#openIfReady();
  }

  #onSynced(): void {
    const needed = this.kinds.map(({ spec }) => spec).filter((spec) => spec !== LEASE);
    if (this.objects?.synced !== false && this.informers.synced(needed)) this.#known.resolve();
  }

  /** Claims Leases and writes the status of objects until the signal is aborted. */
  async #work(client: KubeClient, signal: AbortSignal): Promise<void> {
    const { bgp, objects } = this;
    this.#secrets.client = client;
    const ended = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => ended.resolve(), { once: true });
    // Of a Service, Namespace or pool that is not listed yet, addresses would be those of nobody.
    await Promise.race([this.#known.promise, ended.promise]);
    await Promise.all([
      this.#leases?.run(client, signal),
      objects?.report(client, bgp, signal),
    ]);
  }

  /** Addresses of the ranges of pods and cluster IPs would have two owners. */
  #setTaken(): void {
    this.assigner.setTaken(
      new Map([
        ...this.#configuration.clusterCidrs.map((cidr) => [cidr, "a range of pods"] as const),
        ...this.services.serviceRanges.map((cidr) => [cidr, "a range of cluster IPs"] as const),
      ]),
    );
  }

  get #loops() {
    return [
      ...(this.layer2?.families ?? []).map(({ loop }) => loop),
      ...(this.bgp ? [this.bgp.loop] : []),
      ...(this.pods ? [this.pods.loop] : []),
    ];
  }

  get #reported() {
    const { assigner, layer2, bgp, pods, objects } = this;
    const { settings } = this.#configuration;
    const services = this.informers.of(ROUTED_SERVICE);
    const problems = objects?.problems ?? new Map();
    return { settings, services, assigner, layer2, bgp, pods, problems, leases: this.#leases };
  }

  /** Until the rules of all Services are in force, an announcement would be too early. */
  #openIfReady(): void {
    const { complete } = this.services;
    this.#hasServices ||= this.#parts.configuration.families.every((each) => complete.has(each));
    // Without the objects, addresses and sessions of the last run would be given up.
    if (!this.#isOpen || !this.#hasServices || this.objects?.synced === false) return;
    this.#isOpen = false;
    this.#waiting?.cancel();
    for (const loop of this.#loops) loop.open();
  }
}

/** Enabled by `--routing`; what it added is removed whether or not it is. */
export const ROUTING_CONTROLLER: ControllerDefinition = {
  name: "routing",
  isEnabled: ({ proxy }) => proxy.routing.enabled,
  create: (parts) => new RoutingController(parts),
  async *cleanUp(dependencies, { proxy, relay }) {
    const { routingBackends } = dependencies;
    if (!routingBackends) return;
    for (const family of IP_FAMILIES) {
      const options = { family, announceIntervalMs: 0 };
      await using backend = routingBackends.layer2(dependencies, options);
      yield await backend.cleanup(relay);
    }
    await using backend = routingBackends.bgp(dependencies, proxy.routing.bgp);
    yield await backend.cleanup(relay);
    const { cniConfig } = proxy.routing.podNetwork;
    await using pods = routingBackends.podNetwork(dependencies, {
      isThorough: true,
      cniFiles: [DEFAULT_CNI_CONFIG, ...cniConfig === "" ? [] : [cniConfig]],
    });
    yield await pods.cleanup(relay);
  },
};

/** The node of a run without a cluster, until manifests have a Node. */
function aloneNode(name: string): RoutingNode {
  return { name, labels: {}, annotations: {}, addresses: [], primary: {}, podCidrs: [] };
}

/** The part of the configuration that has been applied. */
interface AppliedConfiguration {
  /** Equal if nothing of it changed. */
  readonly text: string;
  readonly settings: RoutingSettings;
  /** The ranges of all pods; empty = those of the Nodes. */
  readonly clusterCidrs: readonly Cidr[];
}

function appliedConfiguration(
  { routing: given, clusterCIDR }: KubeProxyConfiguration,
  objects?: Pick<ObjectSettings, "join">,
): AppliedConfiguration {
  const routing = objects?.join(given) ?? given;
  return {
    text: JSON.stringify([routing, clusterCIDR]),
    settings: routingSettingsOf(routing),
    clusterCidrs: clusterCIDR.split(",").flatMap((each) => tryParseCidr(each.trim()) ?? []),
  };
}

function bgpSettingsOf(
  { settings: { bgp, pools }, clusterCidrs }: AppliedConfiguration,
): BgpPartSettings | undefined {
  return bgp && { settings: bgp, pools, clusterCidrs };
}
