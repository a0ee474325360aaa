/**
 * The controller of Services: one proxy for each IP family, and what follows their syncs.
 *
 * @module
 */
import type { InterfaceAddress } from "../../os/network.ts";
import type { Node } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import type { Controller } from "../../controller/controller.ts";
import type { RunnerActivity } from "../../controller/sync_runner.ts";
import type { TaskGroup } from "../../controller/task_group.ts";
import type { ProxyHealth } from "../../health/proxy_health.ts";
import type { ServiceHealthServer } from "../../health/service_health_server.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { CommandRunner } from "../../os/command_runner.ts";
import { createConntrack } from "../../os/conntrack.ts";
import type { OpenFiles } from "../../os/open_files.ts";
import type { Backend } from "../../proxy/backend.ts";
import { serviceKey } from "../../proxy/service_port_name.ts";
import type { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { ChangeLog } from "../changes/change_log.ts";
import type { BackendDependencies, Dependencies } from "../dependencies.ts";
import { KubeProxyHandover } from "../handover/kube_proxy_handover.ts";
import { OtherModes } from "../handover/other_modes.ts";
import { LivePlanSettings } from "../run/live_plan_settings.ts";
import type { ObjectSource } from "../run/object_source.ts";
import { planSettingsOf } from "../run/plan_settings.ts";
import type { RunConfiguration } from "../run/run_configuration.ts";
import type { StartUp } from "../run/start_up.ts";
import { ConntrackCleaner, type ConntrackCleanerDependencies } from "./conntrack_cleaner.ts";
import { createFamilyProxies } from "./create_family_proxies.ts";
import type { FamilyProxy } from "./family_proxy.ts";
import { ObjectRouter } from "./object_router.ts";
import { createServiceHealth } from "./service_health.ts";
import type { SyncObserver } from "./sync_observer.ts";

/** What the controller shares with the rest of the run. */
type ServiceControllerDependencies = Dependencies & BackendDependencies & {
  readonly openFiles: OpenFiles;
  readonly informers: InformerSet;
  readonly startUp: StartUp;
  readonly health: ProxyHealth;
  readonly metrics: ProxyMetrics;
  readonly changes: ChangeLog;
  /** `undefined` = Services are not counted one by one. */
  readonly traffic: ServiceTrafficTable | undefined;
};

/** Settings of the controller, and what it tells the run. */
interface ServiceControllerOptions {
  readonly configuration: RunConfiguration;
  readonly nodeName: string;
  /** `undefined` until it has been made. */
  readonly source: () => ObjectSource | undefined;
  /** An object has come, changed or gone: syncs will follow. */
  readonly onWork: () => void;
  /** All objects are known; the first sync of all of them begins. */
  readonly onReady: () => void;
  /** A family has synced for the first time, or for the first time with all objects. */
  readonly onFirstSync: () => void;
}

/** Keeps Services reachable on this node. */
export class ServiceController implements Controller {
  readonly name = "service";
  readonly settings: LivePlanSettings;
  readonly families: readonly FamilyProxy[];
  readonly handover: KubeProxyHandover;
  readonly #dependencies: ServiceControllerDependencies;
  readonly #router: ObjectRouter;
  /** Called for each sync, in this order. */
  readonly #observers: SyncObserver[] = [];
  readonly #serviceHealth: ServiceHealthServer;
  #node: Node | undefined;

  constructor(dependencies: ServiceControllerDependencies, options: ServiceControllerOptions) {
    const { configuration, nodeName, onWork, onReady } = options;
    const { proxy, relay, mode } = configuration;
    const { informers, startUp, health, metrics } = dependencies;
    this.#dependencies = dependencies;
    this.settings = new LivePlanSettings(planSettingsOf(proxy, { nodeName, mode }));
    this.handover = new KubeProxyHandover({
      ...dependencies,
      nodeAnnotations: () => startUp.node.annotations,
      recheck: () => this.families.forEach(({ backend }) => backend.recheck()),
      otherModes: new OtherModes(dependencies, { mode, configuration }),
    }, configuration);
    this.#serviceHealth = createServiceHealth(
      { ...dependencies, events: startUp.events, metrics },
      {
        configuration: proxy,
        settings: this.settings,
        health,
        handover: this.handover,
        uidOf: (service) => informers.of(SERVICE).get(serviceKey(service))?.metadata.uid,
      },
    );
    this.#observers.push(startUp, this.#serviceHealth, this.handover);
    this.families = createFamilyProxies(dependencies, {
      ...options,
      ...dependencies,
      settings: this.settings,
      observers: this.#observers,
    });
    // A host without a cluster has no Node that could be unfit.
    if (relay.manifests.length > 0) health.nodeSeen({});
    this.#router = new ObjectRouter(dependencies, {
      informers,
      nodeName,
      endpointsFallback: relay.endpointsFallback,
      families: this.families,
      serviceCidrs: relay.serviceCidrs,
      // With a takeover, kube-proxy serves what has not been read, and ends afterwards.
      servesEarly: relay.manifests.length > 0 && !relay.takeover,
      onNode: (node) => this.#onNode(node),
      onNodeDeleted: () => startUp.onNodeDeleted(),
      onReady,
      onWork,
    });
  }

  get activity(): readonly RunnerActivity[] {
    return this.families.map(({ loop }) => loop.activity);
  }

  /** The own Node as it was last seen; `undefined` before. */
  get node(): Node | undefined {
    return this.#node;
  }

  /** Whether plans of all objects are in effect in each family. */
  get isComplete(): boolean {
    return this.families.every(({ loop }) => loop.isComplete);
  }

  /** Whether each family has synced. */
  get hasSynced(): boolean {
    return this.families.every(({ loop }) => loop.lastSync);
  }

  async start(tasks: TaskGroup): Promise<void> {
    const backends = this.families.map(({ backend }) => backend);
    this.#observers.push(...startConntrackCleaner(this.#dependencies, tasks, { backends }));
    await this.#dependencies.startUp.prepare(backends);
    await Promise.all(this.families.map((family) => family.start()));
    tasks.run("handover", (signal) => this.handover.run(signal));
  }

  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    for (const family of this.families) family.onInterfaceAddresses(addresses);
  }

  async stop(): Promise<void> {
    this.#router.stop();
    await Promise.all(this.families.map((family) => family.stop()));
    // Load balancers leave this node out while open connections still have their time.
    await this.#serviceHealth.stop();
  }

  async drain(timeoutMs: number): Promise<void> {
    await Promise.all(this.families.map(({ backend }) => backend.drain(timeoutMs)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { backend } of this.families) await backend[Symbol.asyncDispose]();
  }

  #onNode(node: Node): void {
    this.#node = node;
    const { startUp, health } = this.#dependencies;
    startUp.onNode(node);
    const state = this.settings.nodeState(node);
    for (const family of this.families) family.onNode(state);
    health.nodeSeen({ ...node.metadata, ...node.spec });
  }
}

/** What the cleaner stands on, but for the table itself. */
type StartConntrackCleanerDependencies =
  & Omit<ConntrackCleanerDependencies, "conntrack">
  & { readonly commands: CommandRunner };

/**
 * Starts a cleaner as a task, for backends that leave packets of known flows to the kernel. Returns
 * whom syncs have to be told to: the cleaner, or nobody.
 */
export function startConntrackCleaner(
  dependencies: StartConntrackCleanerDependencies,
  tasks: TaskGroup,
  { backends }: { readonly backends: readonly Pick<Backend, "usesConntrack">[] },
): readonly SyncObserver[] {
  if (!backends.some(({ usesConntrack }) => usesConntrack)) return [];
  const conntrack = createConntrack(dependencies.commands);
  const cleaner = new ConntrackCleaner({ ...dependencies, conntrack });
  tasks.run("conntrack", (signal) => cleaner.run(signal));
  return [cleaner];
}
