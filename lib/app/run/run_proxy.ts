/**
 * A run: builds the parts, starts them in order, and stops them in reverse.
 *
 * @module
 */
import { syncPeriodsOf } from "../../config/configuration.ts";
import { TaskGroup } from "../../controller/task_group.ts";
import { ProxyHealth } from "../../health/proxy_health.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import type { AdjustableLogger } from "../../log/logger.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { InterfaceAddress } from "../../os/network.ts";
import { OpenFiles } from "../../os/open_files.ts";
import { ChangeLog } from "../changes/change_log.ts";
import type { ControlServer } from "../control/control_server.ts";
import { Introspection } from "../control/introspection.ts";
import type { Dependencies } from "../dependencies.ts";
import type { Controller } from "../../controller/controller.ts";
import { ServiceController } from "../service/service_controller.ts";
import { createServiceTraffic } from "./configured_metrics.ts";
import { startRunningServers } from "../serving/running_servers.ts";
import { type CurrentConfiguration, startConfigurationReload } from "./configuration_reload.ts";
import { createConfiguredMetrics } from "./configured_metrics.ts";
import { EventLoopMonitor } from "./event_loop_monitor.ts";
import { InterfaceWatcher } from "./interface_watcher.ts";
import { nodeNameOf } from "./node_name.ts";
import { createObjectSource, type ObjectSource } from "./object_source.ts";
import type { RunConfiguration } from "./run_configuration.ts";
import { ServiceManager } from "./service_manager.ts";
import { StartUp } from "./start_up.ts";

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
  await using run = new Run({ ...dependencies, openFiles }, configuration);
  const tasks = new TaskGroup(signal);
  try {
    await run.start(tasks);
    await tasks.stopped();
  } finally {
    tasks.stop();
    await run.stop();
    await tasks.endedInTime(dependencies);
  }
}

class Run implements AsyncDisposable {
  readonly #dependencies: RunDependencies & { readonly openFiles: OpenFiles };
  readonly #configuration: RunConfiguration;
  readonly #nodeName: string;
  readonly #informers = new InformerSet();
  readonly #eventLoop: EventLoopMonitor;
  readonly #changes: ChangeLog;
  readonly #startUp: StartUp;
  readonly #health: ProxyHealth;
  readonly #metrics: ProxyMetrics;
  readonly #services: ServiceController;
  /** In the order in which they start; they stop in the reverse order. */
  readonly #controllers: readonly Controller[];
  readonly #interfaces: InterfaceWatcher;
  readonly #manager: ServiceManager;
  #phase = "waiting for objects";
  /** Absent before it can change. */
  #current: CurrentConfiguration | undefined;
  #source: ObjectSource | undefined;
  #control: ControlServer | undefined;

  constructor(
    dependencies: RunDependencies & { readonly openFiles: OpenFiles },
    configuration: RunConfiguration,
  ) {
    const { proxy, relay: { serviceCounters, controlSocket }, mode } = configuration;
    const { clock, process } = dependencies;
    this.#dependencies = dependencies;
    this.#configuration = configuration;
    const nodeName = this.#nodeName = nodeNameOf(proxy, process);
    this.#eventLoop = new EventLoopMonitor(dependencies);
    this.#changes = new ChangeLog(dependencies);
    this.#startUp = new StartUp(dependencies, { configuration, nodeName });
    this.#health = new ProxyHealth(dependencies, {
      timeoutMs: 2 * syncPeriodsOf(proxy, mode).syncPeriod,
    });
    const traffic = createServiceTraffic(dependencies, { mode, serviceCounters });
    this.#metrics = createConfiguredMetrics({ clock, traffic }, configuration);
    this.#services = new ServiceController({
      ...dependencies,
      informers: this.#informers,
      startUp: this.#startUp,
      health: this.#health,
      metrics: this.#metrics,
      changes: this.#changes,
      traffic,
    }, {
      configuration,
      nodeName,
      source: () => this.#source,
      onWork: () => this.#eventLoop.expectWork(),
      onReady: () => this.#enter(SERVING),
      onFirstSync: () => this.#notifyReady(),
    });
    this.#controllers = [this.#services];
    this.#interfaces = new InterfaceWatcher(
      dependencies,
      (addresses) => this.#onAddresses(addresses),
    );
    this.#manager = new ServiceManager(dependencies, {
      folder: controlSocket.replace(/\/[^/]*$/, ""),
    });
  }

  async start(tasks: TaskGroup): Promise<void> {
    tasks.run("event loop", (signal) => this.#eventLoop.run(signal));
    this.#eventLoop.expectWork();
    const { settings, families } = this.#services;
    this.#current = startConfigurationReload(
      { ...this.#dependencies, metrics: this.#metrics },
      tasks,
      {
        configuration: this.#configuration,
        nodeName: this.#nodeName,
        settings,
        families,
        startUp: this.#startUp,
        changes: this.#changes,
      },
    );
    this.#control = await this.#startServers(tasks, this.#current);
    // Side by side: reading a kubeconfig means to load a large library, starting means to wait for `ip`.
    const [source] = await Promise.all([
      createObjectSource(this.#dependencies, {
        configuration: this.#configuration,
        onApiAnswer: (answer) => this.#metrics.apiAnswered(answer),
        informers: this.#informers,
      }),
      ...this.#controllers.map((controller) => controller.start(tasks)),
    ]);
    this.#source = source;
    this.#interfaces.start();
    const eventsWritten = this.#startUp.start(tasks, source.client);
    tasks.run("source", (signal) => source.run(signal, { keepOpen: eventsWritten }));
    this.#manager.startWatchdog(tasks, () => this.#controllers.flatMap(({ activity }) => activity));
    await this.#manager.status(this.#phase);
  }

  /** Ends syncing, then gives open connections their time. Sources and servers end with the tasks. */
  async stop(): Promise<void> {
    this.#enter("stopping");
    await this.#manager.stopping();
    this.#interfaces.stop();
    const reversed = this.#controllers.toReversed();
    for (const controller of reversed) await controller.stop();
    const { drainTimeoutMs } = this.#configuration.relay;
    await Promise.all(reversed.map((controller) => controller.drain(drainTimeoutMs)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const controller of this.#controllers.toReversed()) {
      await controller[Symbol.asyncDispose]();
    }
    await this.#control?.stop();
    this.#manager[Symbol.dispose]();
  }

  #startServers(tasks: TaskGroup, current: CurrentConfiguration): Promise<ControlServer> {
    const { families, handover } = this.#services;
    const parts = {
      families,
      startUp: this.#startUp,
      eventLoop: this.#eventLoop,
      changes: this.#changes,
      source: () => this.#source,
    };
    const introspection = new Introspection(this.#dependencies, {
      ...parts,
      startedAt: new Date(this.#dependencies.clock.wallNow()).toISOString(),
      phase: () => this.#phase,
      configuration: () => ({ ...this.#configuration, ...this.#current }),
      informers: () => this.#informers,
      node: () => this.#services.node,
    });
    return startRunningServers({ ...this.#dependencies, events: this.#startUp.events }, tasks, {
      ...parts,
      configuration: this.#configuration,
      current,
      nodeName: this.#nodeName,
      health: this.#health,
      metrics: this.#metrics,
      phase: () => this.#phase === SERVING ? undefined : this.#phase,
      handover,
      introspection,
    });
  }

  #onAddresses(addresses: readonly InterfaceAddress[]): void {
    for (const controller of this.#controllers) controller.onInterfaceAddresses(addresses);
    this.#startUp.onInterfaces().catch((error) =>
      this.#dependencies.logger.warn("Cannot check kernel settings of new interfaces", { error })
    );
  }

  /** A unit that is ordered after this one may use Services: it is ready when they work. */
  #notifyReady(): void {
    if (this.#services.isComplete) void this.#manager.ready();
    // A manifest that is never read to its end is no reason to end what works without it.
    else if (this.#services.hasSynced) this.#manager.readyIn(PATIENCE_MS);
  }

  #enter(phase: string): void {
    this.#phase = phase;
    this.#dependencies.logger.info("Entered phase", { phase });
    // Nothing waits for systemd; a failure is logged there.
    void this.#manager.status(phase);
  }
}
