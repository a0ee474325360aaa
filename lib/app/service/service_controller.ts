import type { InterfaceAddress } from "../../os/network.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../net/ip_address.ts";
import type { Node } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import type { KubeProxyConfiguration } from "../../config/configuration.ts";
import type { Controller, ControllerStatus, LoopActivity } from "../../engine/controller.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import { type ListenForService, ServiceHealthServer } from "../../health/service_health_server.ts";
import { createConntrack, readConntrackSize } from "../../os/conntrack.ts";
import { readResolvers } from "../../os/host_addresses.ts";
import { HttpConnections } from "../../os/http_server.ts";
import { probeWildcard } from "../../os/wildcard.ts";
import { MODE_TRAITS, nodePortEntries } from "../../proxy/backend.ts";
import { serviceKey } from "../../proxy/service_port_name.ts";
import type { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { ControllerParts } from "../controllers.ts";
import { KubeProxyHandover } from "../handover.ts";
import { HostSettings } from "../run/host_settings.ts";
import { configuredNodePorts, type PlanSettings, planSettingsOf } from "../run/plan_settings.ts";
import { ConntrackCleaner } from "./conntrack_cleaner.ts";
import { HostGuard } from "./host_guard.ts";
import { HostRegistry, hostsAt } from "./host_registry.ts";
import { PrimaryAddresses, withPrimaryAddresses } from "./primary_addresses.ts";
import { collectFamilyStatus, NodePortReport, type StatusFamily } from "./service_status.ts";
import { followedKinds } from "./service_subscriptions.ts";
import { createServiceFamily, followServices, type ServiceFamily } from "./services.ts";
import { whenSynced } from "../change_listener.ts";

/** The resolvers of this machine. With systemd-resolved the first file names only 127.0.0.53. */
const RESOLVER_FILES = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

/** What the controller of Services shares with the rest of the run. */
type Parts = Omit<ControllerParts, "controllerOfServices"> & {
  /** `undefined` = Services are not counted one by one. */
  readonly traffic: ServiceTrafficTable | undefined;
};

/** Keeps Services reachable on this node. */
export class ServiceController implements Controller {
  readonly name = "service";
  readonly families: readonly ServiceFamily[];
  readonly handover: KubeProxyHandover;
  readonly hostSettings: HostSettings;
  readonly kinds: Controller["kinds"];
  readonly #parts: Parts;
  readonly #serviceHealth: ServiceHealthServer;
  /** Absent in modes that make no addresses local. */
  readonly #guard: HostGuard | undefined;
  readonly #hosts = new HostRegistry((address, host) => {
    this.families.find(({ family }) => family === ipFamilyOf(address))?.services.onHost(
      address,
      host,
    );
    this.#guard?.hostChanged();
  });
  #settings: PlanSettings;
  #node: Node | undefined;
  /** Absent with a cluster, whose Node has the addresses. */
  readonly #primary: PrimaryAddresses | undefined;

  constructor(parts: Parts) {
    const { configuration, current, nodeName, informers, startUp, health } = parts;
    const { proxy, relay, mode } = configuration;
    const { bindsAddresses, forwardsItself } = MODE_TRAITS[mode];
    this.#parts = parts;
    this.kinds = followedKinds(mode);
    this.#settings = this.#settingsOf(proxy);
    this.handover = new KubeProxyHandover({
      ...parts,
      nodeAnnotations: () => startUp.node.annotations,
      recheck: () => this.families.forEach(({ backend }) => backend.recheck()),
      distrust: (isOn) => this.families.forEach(({ backend }) => backend.distrust?.(isOn)),
    }, configuration);
    this.#serviceHealth = createServiceHealth(parts, this.handover);
    // The first listeners of a sync; the guard and the report come after the loops' own.
    parts.serviceListeners.push(whenSynced((...synced) => {
      this.hostSettings.synced();
      this.#serviceHealth.synced(...synced);
      this.handover.synced(...synced);
    }));
    this.families = configuration.families.map((family) =>
      createServiceFamily(parts, family, this.#settings, parts.traffic)
    );
    const backends = this.families.map(({ backend }) => backend);
    this.hostSettings = new HostSettings(parts, mode, backends, () => current.proxy);
    if (bindsAddresses) {
      this.#guard = new HostGuard(parts, {
        registry: this.#hosts,
        families: this.families,
        client: () => parts.source.client,
        leftoversAreIdle: forwardsItself,
      });
      parts.serviceListeners.push(whenSynced((...synced) => this.#guard?.synced(...synced)));
    }
    const nodePorts = new NodePortReport(parts);
    parts.serviceListeners.push(whenSynced((...synced) => nodePorts.synced(...synced)));
    parts.sources.push(nodePorts);
    if (relay.manifests.length > 0) {
      // A host without a cluster has no Node that could be unfit.
      health.nodeSeen({});
      this.#primary = new PrimaryAddresses(
        parts.commands,
        () => nodePortEntries(current.proxy.nodePortAddresses, mode).includes("primary"),
        (found) => {
          startUp.onRouteSources(found);
          this.#passNode();
        },
      );
    }
    const { endpointsFallback, serviceCidrs } = relay;
    // During a takeover, kube-proxy serves the unread objects, and ends afterwards.
    const servesEarly = relay.manifests.length > 0 && !relay.takeover;
    const families = this.families.map(({ services }) => services);
    followServices(informers, nodeName, families, {
      endpointsFallback,
      serviceCidrs,
      hosts: this.#hosts,
      hasAllNodes: bindsAddresses,
      onNode: (node) => this.#onNode(node),
      onNodeDeleted: () => startUp.onNodeDeleted(),
      ...(servesEarly && { afterChange: () => this.families.forEach((each) => each.openEarly()) }),
    });
  }

  get activity(): readonly LoopActivity[] {
    return this.families.map(({ loop }) => loop.activity);
  }

  /** The own Node as it was last seen; `undefined` before. */
  get node(): Node | undefined {
    return this.#node;
  }

  async start(tasks: TaskGroup): Promise<void> {
    const { commands, serviceListeners } = this.#parts;
    if (this.families.some(({ backend }) => backend.usesConntrack)) {
      const cleaner = new ConntrackCleaner({
        ...this.#parts,
        conntrack: createConntrack(commands),
      });
      serviceListeners.push(cleaner);
      tasks.run("conntrack", (signal) => cleaner.run(signal));
    }
    await this.hostSettings.apply();
    const resolvers = (await Promise.all(RESOLVER_FILES.map(readResolvers))).flat();
    this.setHosts("resolvers", hostsAt(resolvers, { owner: "a resolver" }));
    await this.#primary?.read();
    await this.handover.note();
    await Promise.all(this.families.map((family) => family.start()));
    tasks.run("kernel settings", (signal) => this.hostSettings.run(signal));
    if (this.#primary) tasks.run("primary addresses", (signal) => this.#primary!.run(signal));
    if (this.#guard) tasks.run("addresses of other machines", (signal) => this.#guard!.run(signal));
    tasks.run("handover", (signal) => this.handover.run(signal));
  }

  open(): void {
    for (const family of this.families) family.open();
  }

  /** Replaces the machines of a source that this node has to reach. */
  setHosts(source: string, hosts: Parameters<HostRegistry["set"]>[1]): void {
    this.#hosts.set(source, hosts);
  }

  /** Asks for a sync, which tries what is in quarantine again. */
  requestSync(family: IpFamily): void {
    this.families.find((each) => each.family === family)?.loop.request();
  }

  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    for (const family of this.families) family.onInterfaceAddresses(addresses);
    this.#primary?.onInterfaceAddresses(addresses);
    this.hostSettings.onInterfaceAddresses();
  }

  onConfiguration(): void {
    this.#primary?.onConfiguration();
  }

  /** Takes a configuration in which something that concerns Services has changed. */
  setConfiguration(proxy: KubeProxyConfiguration): void {
    this.#settings = this.#settingsOf(proxy);
    for (const { services } of this.families) services.onSettings(this.#settings);
    this.#parts.startUp.onConfiguration(proxy);
  }

  #settingsOf(proxy: KubeProxyConfiguration): PlanSettings {
    const { configuration: { mode, relay: { externalIpRanges } }, nodeName } = this.#parts;
    return planSettingsOf(proxy, { nodeName, mode, externalIpRanges });
  }

  async stop(): Promise<void> {
    await Promise.all(this.families.map(({ loop }) => loop.stop()));
    // Load balancers leave this node out while open connections still have their time.
    await this.#serviceHealth.stop();
  }

  async drain(timeoutMs: number): Promise<void> {
    await Promise.all(this.families.map(({ backend }) => backend.drain(timeoutMs)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { backend } of this.families) await backend[Symbol.asyncDispose]();
  }

  async status(
    options: { readonly brief: boolean },
  ): Promise<ControllerStatus & { readonly families: readonly StatusFamily[] }> {
    const families = [];
    for (const family of this.families) {
      families.push(await collectFamilyStatus(this.#parts.clock, family, options));
    }
    return { controller: this.name, families, facts: [] };
  }

  /** The address by which the default route sends; `undefined` with a cluster. */
  primaryAddress(family: IpFamily): IpAddress | undefined {
    return this.#primary?.found.find((address) => ipFamilyOf(address) === family);
  }

  async collectMetrics(): Promise<void> {
    const { commands, metrics } = this.#parts;
    if (this.families.some(({ backend }) => backend.usesConntrack)) {
      metrics.setConntrack(await readConntrackSize(commands));
    }
    for (const { family, services: { services, endpoints, plan }, backend } of this.families) {
      // Counters that cannot be read keep their last value; the backend logs the reason at a sync.
      const { connections, counting } = backend;
      const rules = await counting?.ruleCounters().catch(() => undefined);
      if (rules) metrics.setRuleCounters(family, rules);
      await counting?.refreshTraffic().catch(() => undefined);
      if (connections) {
        await connections.refresh();
        metrics.setTraffic(family, connections.counters);
        metrics.setHealth(family, connections.health);
      }
      const { size } = plan.services;
      metrics.its["kube_relay_planned_service_ports"].set({ ip_family: family }, size);
      metrics.setChanges(family, {
        servicesPending: services.pending,
        servicesTotal: services.total,
        endpointsPending: endpoints.pending,
        endpointsTotal: endpoints.total,
      });
    }
  }

  #passNode(): void {
    const own = this.#settings.nodeState(this.#node);
    const state = withPrimaryAddresses(own, this.#primary?.found ?? []);
    for (const { services } of this.families) services.onNode(state);
  }

  #onNode(node: Node): void {
    this.#node = node;
    const { startUp, health } = this.#parts;
    startUp.onNode(node);
    this.#passNode();
    health.nodeSeen({ ...node.metadata, ...node.spec });
  }
}

/** Creates the servers for load balancers; they listen once a sync has a Service that needs it. */
export function createServiceHealth(
  { configuration, current, startUp, health, informers, metrics, openFiles, ...edges }:
    & Pick<ControllerParts, "clock" | "logger" | "network" | "openFiles" | "random">
    & Pick<ControllerParts, "configuration" | "current" | "health" | "informers">
    & {
      readonly startUp: Pick<ControllerParts["startUp"], "events">;
      readonly metrics: Pick<ControllerParts["metrics"], "healthBindFailed">;
    },
  handover?: KubeProxyHandover,
): ServiceHealthServer {
  const { proxy, mode } = configuration;
  const name = "service_health";
  // All sockets share one bound of connections.
  const connections = new HttpConnections(edges, {
    name,
    bounds: openFiles.httpBounds,
    onRefused: () => openFiles.countRefused(name),
  });
  const listen: ListenForService = (service, address, handler) => {
    const refusal = openFiles.takeListener(service);
    if (refusal !== undefined) throw new Error(refusal);
    try {
      const listener = connections.serve(edges.network.listenTcp(address), handler);
      void listener.finished.then(() => openFiles.giveListener(service));
      return listener;
    } catch (error) {
      openFiles.giveListener(service);
      throw error;
    }
  };
  return new ServiceHealthServer({ ...edges, listen }, {
    ...(handover && { handover }),
    everywhere: (family) => configuredNodePorts(current.proxy, mode, family).kind === "all",
    wildcard: () => probeWildcard(edges.network),
    // A user who disabled the proxy's health check does not want it reported to load balancers.
    proxyHealthy: () => proxy.healthzBindAddress === "" || health.healthy(),
    onListenFailure: ({ service, port, error }) => {
      metrics.healthBindFailed();
      // Upstream's event, with the UID, by which `kubectl describe service` selects events.
      const uid = informers.of(SERVICE).get(serviceKey(service))?.metadata.uid;
      startUp.events.record({
        type: "Warning",
        reason: "FailedToStartServiceHealthcheck",
        action: "Listen",
        note: `Cannot listen on health check node port ${port}: ${error.message}`,
        regarding: {
          ...{ apiVersion: "v1", kind: "Service", ...service },
          ...(uid !== undefined && { uid }),
        },
      });
    },
  });
}
