/**
 * The running proxy: builds the parts, starts them in order, and stops them in reverse.
 *
 * @module
 */
import { SERVICE } from "../../api/kinds/service.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import type { Node } from "../../api/kinds/node.ts";
import { syncPeriodsOf } from "../../config/configuration.ts";
import { ProxyHealth } from "../../health/proxy_health.ts";
import type { ServiceHealthServer } from "../../health/service_health_server.ts";
import type { AdjustableLogger } from "../../log/logger.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import { serviceKey } from "../../proxy/service_port_name.ts";
import { OpenFiles } from "../../os/open_files.ts";
import type { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import { type CurrentConfiguration, startConfigurationReload } from "./configuration_reload.ts";
import { ChangeLog } from "../changes/change_log.ts";
import { createConfiguredMetrics } from "./configured_metrics.ts";
import { createFamilyProxies } from "./create_family_proxies.ts";
import type { Dependencies } from "../dependencies.ts";
import type { ControlServer } from "../control/control_server.ts";
import { EventLoopMonitor } from "./event_loop_monitor.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import { Introspection } from "../control/introspection.ts";
import { InterfaceWatcher } from "./interface_watcher.ts";
import { LivePlanSettings } from "./live_plan_settings.ts";
import { KubeProxyHandover } from "../handover/kube_proxy_handover.ts";
import { nodeNameOf } from "./node_name.ts";
import { createObjectSource, type ObjectSource } from "./object_source.ts";
import { ObjectRouter } from "./object_router.ts";
import { OtherModes } from "../handover/other_modes.ts";
import { planSettingsOf } from "./plan_settings.ts";
import type { RunConfiguration } from "./run_configuration.ts";
import { startRunningServers } from "../serving/running_servers.ts";
import { createServiceTraffic } from "../service/service_counting.ts";
import { createServiceHealth } from "../service/service_health.ts";
import { ServiceManager } from "./service_manager.ts";
import { startConntrackCleaner } from "../service/start_conntrack_cleaner.ts";
import { StartUp } from "./start_up.ts";
import type { SyncObserver } from "../service/sync_observer.ts";
import { TaskGroup } from "./task_group.ts";

/** The phase in which everything is known and synced. */
const SERVING = "serving";
/** So long systemd waits for the rest once a part of the Services works. */
const PATIENCE_MS = 60_000;

/** What a run needs. */
type RunDependencies = Dependencies & {
  readonly logger: AdjustableLogger;
  /** @default {those of a usual limit} */
  readonly openFiles?: OpenFiles;
};

/**
 * Serves until the signal is aborted, then takes no new connections, gives open ones the drain
 * time-out, and resolves. Rejects when it can't go on.
 */
export async function runProxy(
  dependencies: RunDependencies,
  configuration: RunConfiguration,
  signal: AbortSignal,
): Promise<void> {
  const { openFiles = new OpenFiles() } = dependencies;
  await using proxy = new RunningProxy({ ...dependencies, openFiles }, configuration);
  const tasks = new TaskGroup(signal);
  try {
    await proxy.start(tasks);
    await tasks.stopped();
  } finally {
    tasks.stop();
    await proxy.stop();
    await tasks.endedInTime(dependencies);
  }
}

type RunningDependencies = RunDependencies & { readonly openFiles: OpenFiles };

class RunningProxy implements AsyncDisposable {
  readonly #dependencies: RunningDependencies;
  readonly #configuration: RunConfiguration;
  readonly #nodeName: string;
  readonly #settings: LivePlanSettings;
  readonly #health: ProxyHealth;
  readonly #metrics: ProxyMetrics;
  readonly #families: readonly FamilyProxy[];
  readonly #informers = new InformerSet();
  readonly #router: ObjectRouter;
  readonly #manager: ServiceManager;
  readonly #interfaces: InterfaceWatcher;
  /** Told of each successful sync, in this order. */
  readonly #observers: SyncObserver[] = [];
  readonly #serviceHealth: ServiceHealthServer;
  readonly #eventLoop: EventLoopMonitor;
  readonly #traffic: ServiceTrafficTable | undefined;
  readonly #startUp: StartUp;
  readonly #handover: KubeProxyHandover;
  readonly #introspection: Introspection;
  readonly #changes: ChangeLog;
  #node: Node | undefined;
  /** Absent before it can change. */
  #current: CurrentConfiguration | undefined;
  #phase = "waiting for objects";
  #source: ObjectSource | undefined;
  #control: ControlServer | undefined;

  constructor(dependencies: RunningDependencies, configuration: RunConfiguration) {
    const { proxy, relay, mode } = configuration;
    const { clock, process } = dependencies;
    this.#dependencies = dependencies;
    this.#eventLoop = new EventLoopMonitor(dependencies);
    this.#changes = new ChangeLog(dependencies);
    this.#configuration = configuration;
    this.#nodeName = nodeNameOf(proxy, process);
    const nodeName = this.#nodeName;
    this.#settings = new LivePlanSettings(planSettingsOf(proxy, { nodeName, mode }));
    this.#startUp = new StartUp(dependencies, { configuration, nodeName });
    const { syncPeriod } = syncPeriodsOf(proxy, mode);
    this.#health = new ProxyHealth(dependencies, { timeoutMs: 2 * syncPeriod });
    const { serviceCounters } = relay;
    this.#traffic = createServiceTraffic(dependencies, { mode, serviceCounters });
    this.#metrics = createConfiguredMetrics({ clock, traffic: this.#traffic }, configuration);
    this.#handover = new KubeProxyHandover({
      ...dependencies,
      nodeAnnotations: () => this.#startUp.node.annotations,
      recheck: () => this.#families.forEach(({ backend }) => backend.recheck()),
      otherModes: new OtherModes(dependencies, { mode, configuration }),
    }, configuration);
    this.#serviceHealth = this.#createServiceHealth();
    this.#observers.push(this.#startUp, this.#serviceHealth, this.#handover);
    this.#families = this.#createFamilies();
    // A host without a cluster has no Node that could speak against it.
    if (relay.manifests.length > 0) this.#health.nodeSeen({});
    this.#router = this.#createRouter();
    this.#interfaces = new InterfaceWatcher(dependencies, (addresses) => {
      for (const family of this.#families) family.onInterfaceAddresses(addresses);
      this.#startUp.onInterfaces().catch((error) =>
        dependencies.logger.warn("Cannot check kernel settings of new interfaces", { error })
      );
    });
    this.#introspection = this.#createIntrospection();
    this.#manager = new ServiceManager(dependencies, {
      folder: relay.controlSocket.replace(/\/[^/]*$/, ""),
    });
  }

  async start(tasks: TaskGroup): Promise<void> {
    tasks.run("event loop", (signal) => this.#eventLoop.run(signal));
    this.#eventLoop.expectWork();
    const withMetrics = { ...this.#dependencies, metrics: this.#metrics };
    const backends = this.#families.map(({ backend }) => backend);
    const cleaning = { ...withMetrics, changes: this.#changes };
    this.#observers.push(...startConntrackCleaner(cleaning, tasks, { backends }));
    this.#current = startConfigurationReload(withMetrics, tasks, {
      configuration: this.#configuration,
      nodeName: this.#nodeName,
      settings: this.#settings,
      families: this.#families,
      startUp: this.#startUp,
      changes: this.#changes,
    });
    this.#control = await this.#startServers(tasks, this.#current);
    // Side by side: reading a kubeconfig means to load a large library, starting means to wait for `ip`.
    const [source] = await Promise.all([
      createObjectSource(this.#dependencies, {
        configuration: this.#configuration,
        onApiAnswer: (answer) => this.#metrics.apiAnswered(answer),
        informers: this.#informers,
      }),
      this.#startFamilies(),
    ]);
    this.#source = source;
    this.#interfaces.start();
    const told = this.#startUp.start(tasks, source.client);
    tasks.run("source", (signal) => source.run(signal, { keepOpen: told }));
    tasks.run("handover", (signal) => this.#handover.run(signal));
    this.#manager.startWatchdog(tasks, () => this.#families.map(({ loop }) => loop.activity));
    await this.#manager.status(this.#phase);
  }

  /** Ends syncing, then gives open connections their time. Sources and servers end with the tasks. */
  async stop(): Promise<void> {
    const { drainTimeoutMs } = this.#configuration.relay;
    this.#enter("stopping");
    await this.#manager.stopping();
    this.#router.stop();
    this.#interfaces.stop();
    await Promise.all(this.#families.map((family) => family.stop()));
    // Load balancers leave this node out while open connections still have their time.
    await this.#serviceHealth.stop();
    await Promise.all(this.#families.map(({ backend }) => backend.drain(drainTimeoutMs)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { backend } of this.#families) await backend[Symbol.asyncDispose]();
    await this.#control?.stop();
    this.#manager[Symbol.dispose]();
  }

  async #startFamilies(): Promise<void> {
    await this.#startUp.prepare(this.#families.map(({ backend }) => backend));
    await Promise.all(this.#families.map((family) => family.start()));
  }

  #createServiceHealth(): ServiceHealthServer {
    const { events } = this.#startUp;
    return createServiceHealth({ ...this.#dependencies, events, metrics: this.#metrics }, {
      configuration: this.#configuration.proxy,
      settings: this.#settings,
      health: this.#health,
      handover: this.#handover,
      uidOf: (service) => this.#informers.of(SERVICE).get(serviceKey(service))?.metadata.uid,
    });
  }

  #createFamilies(): readonly FamilyProxy[] {
    return createFamilyProxies(this.#dependencies, {
      configuration: this.#configuration,
      settings: this.#settings,
      health: this.#health,
      metrics: this.#metrics,
      observers: this.#observers,
      changes: this.#changes,
      traffic: this.#traffic,
      source: () => this.#source,
      onFirstSync: () => this.#tellReady(),
    });
  }

  #createRouter(): ObjectRouter {
    const { relay } = this.#configuration;
    return new ObjectRouter(this.#dependencies, {
      informers: this.#informers,
      nodeName: this.#nodeName,
      endpointsFallback: relay.endpointsFallback,
      families: this.#families,
      serviceCidrs: relay.serviceCidrs,
      // kube-proxy, which is to end then, serves what has not been read.
      servesEarly: relay.manifests.length > 0 && !relay.takeover,
      onNode: (node) => this.#onNode(node),
      onNodeDeleted: () => this.#startUp.onNodeDeleted(),
      onReady: () => this.#enter(SERVING),
      onWork: () => this.#eventLoop.expectWork(),
    });
  }

  #createIntrospection(): Introspection {
    return new Introspection(this.#dependencies, {
      families: this.#families,
      startUp: this.#startUp,
      eventLoop: this.#eventLoop,
      changes: this.#changes,
      startedAt: new Date(this.#dependencies.clock.wallNow()).toISOString(),
      phase: () => this.#phase,
      source: () => this.#source,
      configuration: () => ({ ...this.#configuration, ...this.#current }),
      informers: () => this.#informers,
      node: () => this.#node,
    });
  }

  #startServers(
    tasks: TaskGroup,
    current: CurrentConfiguration,
  ): Promise<ControlServer | undefined> {
    const dependencies = { ...this.#dependencies, events: this.#startUp.events };
    return startRunningServers(dependencies, tasks, {
      configuration: this.#configuration,
      current,
      nodeName: this.#nodeName,
      health: this.#health,
      metrics: this.#metrics,
      phase: () => this.#phase === SERVING ? undefined : this.#phase,
      handover: this.#handover,
      families: this.#families,
      source: () => this.#source,
      eventLoop: this.#eventLoop,
      startUp: this.#startUp,
      introspection: this.#introspection,
      changes: this.#changes,
    });
  }

  #onNode(node: Node): void {
    this.#node = node;
    this.#startUp.onNode(node);
    const state = this.#settings.nodeState(node);
    for (const family of this.#families) family.onNode(state);
    this.#health.nodeSeen({ ...node.metadata, ...node.spec });
  }

  /** A unit that is ordered after this one may use Services: so it is ready when they work. */
  #tellReady(): void {
    if (this.#families.every(({ loop }) => loop.isComplete)) void this.#manager.ready();
    // A manifest that is never read to its end is no reason to end what works without it.
    else if (this.#families.every(({ loop }) => loop.lastSync)) {
      this.#manager.readyIn(PATIENCE_MS);
    }
  }

  #enter(phase: string): void {
    this.#phase = phase;
    this.#dependencies.logger.info("Entered phase", { phase });
    // Told in passing: nothing waits for systemd, and send() reports its own failures.
    void this.#manager.status(phase);
  }
}
