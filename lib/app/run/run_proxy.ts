/**
 * A run: builds the parts, starts them in order, and stops them in reverse.
 *
 * @module
 */
import { syncPeriodsOf } from "../../config/configuration.ts";
import type { Controller } from "../../engine/controller.ts";
import { TaskGroup } from "../../engine/task_group.ts";
import { ProxyHealth } from "../../health/proxy_health.ts";
import type { KubeAuth } from "../../kube/kube_auth.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import type { AdjustableLogger } from "../../log/logger.ts";
import { collectGarbage } from "../../os/collect_garbage.ts";
import { OpenFiles } from "../../os/open_files.ts";
import type { ControllerDefinition } from "../controllers.ts";
import { MORE_CONTROLLERS } from "../more_controllers.ts";
import { createConnectionJudges } from "../policy/relayed_policies.ts";
import type { ServiceSyncListener } from "../service/service_sync_event.ts";
import { ServiceController } from "../service/service_controller.ts";
import { startProxyServers } from "../serving/proxy_servers.ts";
import { startConfigurationReload } from "./configuration_reload.ts";
import { createConfiguredMetrics, createServiceTraffic } from "./configured_metrics.ts";
import { ControllerOpener } from "./controller_opener.ts";
import { EventLoopMonitor } from "./event_loop_monitor.ts";
import { InterfaceWatcher } from "./interface_watcher.ts";
import { nodeNameOf } from "./start_up.ts";
import { loadConfiguredAuth, RunSource } from "./object_source.ts";
import { createRelayWorkers } from "./relay_workers.ts";
import type { RunConfiguration } from "./run_configuration.ts";
import type { ProgramDependencies } from "./run_tools.ts";
import { ServiceManager } from "./service_manager.ts";
import { StartCollection } from "./start_collection.ts";
import { StartUp } from "./start_up.ts";

type RunDependencies = ProgramDependencies & {
  readonly logger: AdjustableLogger;
  /** @default {the usual limits} */
  readonly openFiles?: OpenFiles;
  /** The content of the kubeconfig. @default {it is read} */
  readonly auth?: KubeAuth | undefined;
  /** Controllers besides that of Services. @default {MORE_CONTROLLERS} */
  readonly moreControllers?: readonly ControllerDefinition[];
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
  const auth = configuration.relay.manifests.length > 0
    ? undefined
    : dependencies.auth ?? await loadConfiguredAuth(dependencies, configuration);
  await using run = new Run(createParts(dependencies, configuration, auth));
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

type Parts = ReturnType<typeof createParts>;

/** Makes the parts, each from those above it; nothing is opened, read or started. */
function createParts(
  { openFiles = new OpenFiles(), moreControllers = MORE_CONTROLLERS, createTools, ...edges }:
    RunDependencies,
  configuration: RunConfiguration,
  auth: KubeAuth | undefined,
) {
  const { proxy, relay: { serviceCounters, controlSocket }, mode } = configuration;
  const workers = createRelayWorkers({ ...edges, openFiles }, configuration);
  const dependencies = { ...edges, openFiles, workers };
  /** The effective configuration; a change of its file replaces it. */
  const current = { proxy };
  const nodeName = nodeNameOf(proxy, edges.process);
  const eventLoop = new EventLoopMonitor(edges);
  const tools = createTools({ ...edges, openFiles });
  const informers = new InformerSet();
  const startUp = new StartUp(edges, configuration, nodeName);
  const health = new ProxyHealth(edges, { timeoutMs: 2 * syncPeriodsOf(proxy, mode).syncPeriod });
  const traffic = createServiceTraffic(edges, { mode, serviceCounters });
  const metrics = createConfiguredMetrics({ clock: edges.clock, traffic }, configuration);
  const source = new RunSource(edges, auth, {
    ...{ configuration, informers, metrics },
    onServer: (addresses) => services.setHosts("API server", addresses),
  });
  const folder = controlSocket.replace(/\/[^/]*$/, "");
  const manager = new ServiceManager(edges, { folder });
  const collection = new StartCollection(edges, collectGarbage);
  // A pause delays what is forwarded.
  const collecting = mode === "userspace" ? [] : [collection];
  const listeners = [health, metrics.loops, manager, ...collecting];
  const shared = {
    ...{ configuration, current, nodeName, informers, source, startUp },
    ...{ health, metrics, changes: tools.changes, judges: createConnectionJudges(configuration) },
    serviceListeners: [] as ServiceSyncListener[],
  };
  const parts = { ...dependencies, ...shared, listeners };
  const services: ServiceController = new ServiceController({ ...parts, traffic });
  const others = moreControllers.filter((each) => each.isEnabled(configuration))
    .map((each) => each.create({ ...parts, controllerOfServices: services }));
  /** In the order in which they start; they stop in the reverse order. */
  const controllers: readonly Controller[] = [services, ...others];
  const opener = new ControllerOpener({ ...edges, eventLoop, manager }, { informers, controllers });
  const interfaces = new InterfaceWatcher(edges, [...controllers, startUp], controllers);
  const running = {
    ...shared,
    tools,
    traffic,
    collection,
    eventLoop,
    manager,
    services,
    others,
    controllers,
  };
  return { dependencies, ...running, opener, interfaces };
}

class Run implements AsyncDisposable {
  readonly #parts: Parts;
  /** Resolves when the client of the API server is no longer needed for events. */
  readonly #eventsWritten = Promise.withResolvers<void>();
  #control: { stop(): Promise<void> } | undefined;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  async start(tasks: TaskGroup): Promise<void> {
    const { dependencies, controllers, eventLoop, interfaces, manager, metrics } = this.#parts;
    const { opener, services, source, startUp } = this.#parts;
    tasks.run("event loop", (signal) => eventLoop.run(signal));
    eventLoop.expectWork();
    const { workers } = dependencies;
    if (workers?.kind === "threads") tasks.run("workers", (signal) => workers.pool.run(signal));
    startConfigurationReload({ ...dependencies, metrics }, tasks, this.#parts);
    const { tools } = this.#parts;
    startProxyServers({ ...dependencies, events: startUp.events }, tasks, {
      ...this.#parts,
      handover: services.handover,
      localPages: tools.pages(this.#parts, tasks.signal),
      gather: () => this.#collectMetrics(),
    });
    this.#control = await tools.openControl(this.#parts);
    await this.#startControllers(tasks);
    interfaces.start();
    this.#eventsWritten.resolve(startUp.start(tasks, source.client));
    opener.allow();
    manager.startWatchdog(tasks, controllers);
    await manager.notifyPhase();
  }

  /** Objects arrive while the controllers wait for the tools that tell what the machine holds. */
  async #startControllers(tasks: TaskGroup): Promise<void> {
    const { controllers, source } = this.#parts;
    const keepOpen = this.#eventsWritten.promise;
    try {
      tasks.run("source", (signal) => source.run(signal, { keepOpen }));
      await Promise.all(controllers.map((each) => each.start(tasks)));
    } catch (error) {
      this.#eventsWritten.resolve();
      throw error;
    }
  }

  /** Sets the metrics that are only collected for a scrape. */
  async #collectMetrics(): Promise<void> {
    const { controllers, dependencies, eventLoop, metrics, source, startUp } = this.#parts;
    const { openFiles, uncaught, workers } = dependencies;
    metrics.setProcess(openFiles, {
      uncaughtErrors: uncaught?.count ?? 0,
      ...(workers?.kind === "threads" && { workerRestarts: workers.pool.restarts }),
    });
    metrics.its["kube_relay_event_loop_delay_max_seconds"].set(eventLoop.largestMs / 1000);
    const refused = startUp.hostSettings.filter(({ state }) => state === "refused");
    metrics.its["kube_relay_host_settings_refused"].set(refused.length);
    for (const { resource, age, repetitions } of source.figures()) {
      if (age !== undefined) metrics.setSourceAge(resource, age);
      if (repetitions) metrics.setRepetitions(resource, repetitions);
    }
    for (const controller of controllers) await controller.collectMetrics?.();
  }

  /** Ends syncing, then gives open connections their time. Sources and servers end with the tasks. */
  async stop(): Promise<void> {
    const { configuration: { relay }, controllers, interfaces, manager, opener } = this.#parts;
    opener.stop();
    manager.enter("stopping");
    await manager.stopping();
    interfaces.stop();
    const reversed = controllers.toReversed();
    for (const controller of reversed) await controller.stop();
    await Promise.all(reversed.map((controller) => controller.drain(relay.drainTimeoutMs)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { collection, controllers, dependencies: { workers }, manager } = this.#parts;
    collection[Symbol.dispose]();
    for (const controller of controllers.toReversed()) await controller[Symbol.asyncDispose]();
    if (workers?.kind === "threads") workers.pool[Symbol.dispose]();
    await this.#control?.stop();
    manager[Symbol.dispose]();
  }
}
