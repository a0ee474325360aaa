/**
 * A run: builds the parts, starts them in order, and stops them in reverse.
 *
 * @module
 */
import { syncPeriodsOf } from "../../config/configuration.ts";
import { FEATURE_GATES, featureEnabled } from "../../config/feature_gates.ts";
import { VERSION } from "../../config/version.ts";
import type { Controller, FollowedKinds } from "../../engine/controller.ts";
import { loopText } from "../../engine/loop_id.ts";
import type { SyncListener } from "../../engine/sync_event.ts";
import { TaskGroup } from "../../engine/task_group.ts";
import { ProxyHealth } from "../../health/proxy_health.ts";
import { InformerSet } from "../../kube/informer_set.ts";
import type { KubeAuth } from "../../kube/kube_auth.ts";
import type { AdjustableLogger, Logger } from "../../log/logger.ts";
import { hasMetric, SERVICE_METRICS } from "../../metrics/metric_table.ts";
import { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import { collectGarbage } from "../../os/collect_garbage.ts";
import type { InterfaceAddress, Network } from "../../os/network.ts";
import { OpenFiles } from "../../os/open_files.ts";
import { TerminationRequest } from "../../os/termination_signals.ts";
import type { RelayWorkers } from "../../os/worker_pool.ts";
import { ConnectionJudge } from "../../policy/connection_judge.ts";
import { MODE_TRAITS } from "../../proxy/backend.ts";
import { ServiceTrafficTable } from "../../proxy/service_traffic.ts";
import type { ControllerDefinition } from "../controllers.ts";
import type { RunConfiguration } from "../dependencies.ts";
import { NETWORK_POLICY_CONTROLLER } from "../policy/policy_controller.ts";
import { ROUTING_CONTROLLER } from "../routing/routing_controller.ts";
import { ServiceController } from "../service/service_controller.ts";
import type { ServiceSyncListener } from "../change_listener.ts";
import { startProxyServers } from "../serving/proxy_servers.ts";
import { startConfigurationReload } from "./configuration_reload.ts";
import {
  createApiObjectSource,
  createManifestObjectSource,
  loadConfiguredAuth,
} from "./object_source.ts";
import { createRelayWorkers } from "./relay_workers.ts";
import type { ProgramDependencies } from "./run_tools.ts";
import { EventLoopMonitor, ServiceManager, SERVING } from "./service_manager.ts";
import { nodeNameOf, StartUp } from "./start_up.ts";

/**
 * The controllers of this build besides that of Services, which every run has, in the order in which
 * they start after it.
 */
export const MORE_CONTROLLERS: readonly ControllerDefinition[] = [
  NETWORK_POLICY_CONTROLLER,
  ROUTING_CONTROLLER,
];

/** kube-proxy's names of the stages; GA is the empty string. */
const STAGES = { alpha: "ALPHA", beta: "BETA", GA: "" } as const;
/** Time between two reads of the addresses; node ports follow a change within it. */
const INTERFACE_PERIOD_MS = 10_000;
/** Enough for the loops of other families and controllers to finish the start, too. */
const COLLECTION_DELAY_MS = 1000;

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
  const { openFiles = new OpenFiles() } = dependencies;
  const workers = await createRelayWorkers({ ...dependencies, openFiles }, configuration);
  const parts = createParts({ ...dependencies, openFiles, workers }, configuration, auth);
  await using run = new Run(parts);
  const tasks = new TaskGroup(signal);
  try {
    await run.start(tasks);
    await tasks.stopped();
  } finally {
    tasks.stop();
    const { reason } = signal;
    await run.stop(reason instanceof TerminationRequest && reason.isRestart);
    await tasks.endedInTime(dependencies);
  }
}

type Parts = ReturnType<typeof createParts>;

/** Makes the parts, each from those above it; nothing is opened, read or started. */
function createParts(
  { openFiles, workers, moreControllers = MORE_CONTROLLERS, createTools, ...edges }:
    & RunDependencies
    & { readonly openFiles: OpenFiles; readonly workers: RelayWorkers | undefined },
  configuration: RunConfiguration,
  auth: KubeAuth | undefined,
) {
  const { proxy, relay: { controlSocket, manifests }, mode, families } = configuration;
  const dependencies = { ...edges, openFiles, workers };
  /** The effective configuration; a change of its file replaces it. */
  const current = { proxy };
  const nodeName = nodeNameOf(proxy, edges.process);
  const eventLoop = new EventLoopMonitor(edges);
  const tools = createTools({ ...edges, openFiles });
  const informers = new InformerSet();
  const startUp = new StartUp(edges, configuration, nodeName);
  const health = new ProxyHealth(edges, { timeoutMs: 2 * syncPeriodsOf(proxy, mode).syncPeriod });
  const traffic = createServiceTraffic(edges, configuration);
  const metrics = new ProxyMetrics({
    ...{ clock: edges.clock, version: VERSION, mode, families },
    hasRouting: proxy.routing.enabled,
    featureGates: FEATURE_GATES.map(({ name, stage }) => ({
      ...{ name, stage: STAGES[stage], enabled: featureEnabled(proxy, name) },
    })),
    ...(traffic && { traffic }),
  });
  const source = auth === undefined
    ? createManifestObjectSource(edges, manifests, informers)
    : createApiObjectSource(edges, auth, {
      ...{ configuration, informers, metrics },
      onServer: (addresses) => services.setHosts("API server", addresses),
    });
  const folder = controlSocket.replace(/\/[^/]*$/, "");
  const manager = new ServiceManager(edges, { folder });
  const collection = new StartCollection(edges.clock, collectGarbage);
  // A pause delays what is forwarded.
  const collecting = mode === "userspace" ? [] : [collection];
  const isJudged = proxy.networkPolicy.enabled && MODE_TRAITS[mode].forwardsItself;
  const listeners = [health, metrics, manager, ...collecting];
  const shared = {
    ...{ configuration, current, nodeName, informers, source, sources: [source], startUp },
    ...{ health, metrics, changes: tools.changes },
    judges: new Map(isJudged ? families.map((family) => [family, new ConnectionJudge()]) : []),
    serviceListeners: [] as ServiceSyncListener[],
  };
  const parts = { ...dependencies, ...shared, listeners };
  const services: ServiceController = new ServiceController({ ...parts, traffic });
  const others = moreControllers.filter((each) => each.isEnabled(configuration))
    .map((each) => each.create({ ...parts, controllerOfServices: services }));
  /** In the order in which they start; they stop in the reverse order. */
  const controllers: readonly Controller[] = [services, ...others];
  const opener = new ControllerOpener(edges.clock, informers, controllers, {
    onObject: () => eventLoop.expectWork(),
    onAllOpen: () => manager.enter(SERVING),
  });
  const running = { tools, traffic, collection, eventLoop, manager, services, others, controllers };
  return { dependencies, ...shared, ...running, opener };
}

/**
 * Creates the table of counters; `undefined` if the flag is off, or if the mode cannot count. The
 * latter is logged: a flag without effect would look like Services without traffic.
 */
function createServiceTraffic(
  { logger }: { readonly logger: Logger },
  { mode, relay: { serviceCounters } }: RunConfiguration,
): ServiceTrafficTable | undefined {
  if (!serviceCounters) return undefined;
  const counter = SERVICE_METRICS["kube_relay_service_received_bytes_total"]!;
  if (hasMetric(mode, counter)) return new ServiceTrafficTable();
  const modes = counter.modes!.join(", ");
  logger.warn("--service-counters counts nothing in this mode", { mode, modes });
  return undefined;
}

class Run implements AsyncDisposable {
  readonly #parts: Parts;
  /** Resolves when the client of the API server is no longer needed for events. */
  readonly #eventsWritten = Promise.withResolvers<void>();
  #control: { stop(): Promise<void> } | undefined;
  #interfaces: Disposable | undefined;

  constructor(parts: Parts) {
    this.#parts = parts;
  }

  async start(tasks: TaskGroup): Promise<void> {
    const { dependencies, controllers, eventLoop, manager, metrics } = this.#parts;
    const { opener, services, source, startUp, tools } = this.#parts;
    const { workers } = dependencies;
    tasks.run("event loop", (signal) => eventLoop.run(signal));
    eventLoop.expectWork();
    if (workers?.kind === "workers") tasks.run("workers", (signal) => workers.pool.run(signal));
    startConfigurationReload({ ...dependencies, metrics }, tasks, this.#parts);
    startProxyServers({ ...dependencies, events: startUp.events }, tasks, {
      ...this.#parts,
      handover: services.handover,
      localPages: tools.pages(this.#parts, tasks.signal),
      gather: () => this.#collectMetrics(),
    });
    this.#control = await tools.openControl(this.#parts);
    const keepOpen = this.#eventsWritten.promise;
    // Objects arrive while the controllers wait for the tools that tell what the machine holds.
    tasks.run("source", (signal) => source.run(signal, { keepOpen }));
    const failures: unknown[] = [];
    const starting = controllers.map((each) =>
      each.start(tasks).catch((error) => {
        failures.push(error);
        tasks.stop();
      })
    );
    // Nothing is disposed while it starts.
    await Promise.all(starting);
    if (failures.length > 0) {
      this.#eventsWritten.resolve();
      throw failures[0];
    }
    // Also of a start that ends here: an event has the reason.
    this.#eventsWritten.resolve(startUp.start(tasks, source.client));
    if (tasks.signal.aborted) return;
    this.#interfaces = watchInterfaces(dependencies, controllers);
    opener.allow();
    manager.startWatchdog(tasks, controllers);
    await manager.notifyPhase();
  }

  /** Sets the metrics that are only collected for a scrape. */
  async #collectMetrics(): Promise<void> {
    const { controllers, dependencies, eventLoop, metrics, services, source, tools } = this.#parts;
    const { openFiles, uncaught, workers } = dependencies;
    metrics.setProcess(openFiles, {
      uncaughtErrors: uncaught?.count ?? 0,
      ...(workers?.kind === "workers" && { workerRestarts: workers.pool.restarts }),
    });
    metrics.its["kube_relay_event_loop_delay_max_seconds"].set(eventLoop.largestMs / 1000);
    const refused = services.hostSettings.outcomes.filter(({ state }) => state === "refused");
    metrics.its["kube_relay_host_settings_refused"].set(refused.length);
    for (const { resource, age, repetitions } of source.figures()) {
      metrics.setSource(resource, age, repetitions);
    }
    for (const controller of controllers) await controller.collectMetrics?.();
    metrics.setProblems(await tools.problems(this.#parts));
  }

  /**
   * Ends syncing, then gives open connections their time, unless others carry them on during a restart.
   * Sources and servers end with the tasks.
   */
  async stop(isRestart: boolean): Promise<void> {
    const { configuration: { relay }, controllers, dependencies, manager, opener } = this.#parts;
    const { logger, workers } = dependencies;
    opener.stop();
    manager.enter("stopping");
    await manager.stopping();
    this.#interfaces?.[Symbol.dispose]();
    const reversed = controllers.toReversed();
    for (const controller of reversed) await controller.stop();
    if (isRestart && workers?.kind === "workers" && workers.pool.leave()) {
      logger.info("The data processes go on for the next kube-relay");
    }
    await Promise.all(reversed.map((controller) => controller.drain(relay.drainTimeoutMs)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { collection, controllers, dependencies: { workers }, manager } = this.#parts;
    collection[Symbol.dispose]();
    for (const controller of controllers.toReversed()) await controller[Symbol.asyncDispose]();
    if (workers?.kind === "workers") workers.pool[Symbol.dispose]();
    await this.#control?.stop();
    manager[Symbol.dispose]();
  }
}

/**
 * Opens each controller once it has started and the objects of its kinds are known, because rules for
 * a part of a cluster would be wrong. A controller does not wait for the kinds of another one.
 */
export class ControllerOpener {
  readonly #clock: Clock;
  readonly #closed: Set<Pick<Controller, "kinds" | "open">>;
  readonly #informers: FollowedKinds;
  readonly #onAllOpen: () => void;
  /** Controllers that wait for a limited time, and since when. */
  readonly #waits = new Map<
    Pick<Controller, "kinds" | "open">,
    { readonly since: number; readonly timer: Timer }
  >();
  #isAllowed = false;

  /**
   * `informers`: those of a controller that has none of its own. `onObject` is called for each object
   * that is added, changed or deleted.
   */
  constructor(
    clock: Clock,
    informers: FollowedKinds,
    controllers: readonly Pick<Controller, "kinds" | "open">[],
    { onObject, onAllOpen }: { readonly onObject: () => void; readonly onAllOpen: () => void },
  ) {
    this.#clock = clock;
    this.#informers = informers;
    this.#closed = new Set(controllers);
    this.#onAllOpen = onAllOpen;
    const kinds = controllers.flatMap(({ kinds }) => kinds);
    const handler = {
      ...{ onAdd: onObject, onUpdate: onObject, onDelete: onObject },
      onSynced: () => this.#look(),
    };
    for (const each of new Set([informers, ...kinds.map((kind) => kind.informers ?? informers)])) {
      for (const { informer } of each) informer.addHandler(handler);
    }
  }

  /** Called once all controllers have started. */
  allow(): void {
    this.#isAllowed = true;
    this.#look();
  }

  /** Opens no further controller. */
  stop(): void {
    this.#closed.clear();
    for (const { timer } of this.#waits.values()) timer.cancel();
  }

  #look(): void {
    if (!this.#isAllowed) return;
    const now = this.#clock.now();
    for (const controller of this.#closed) {
      const missing = controller.kinds.filter(({ spec, informers = this.#informers }) =>
        !informers.synced([spec])
      );
      const waitMs = Math.max(0, ...missing.map(({ waitMs = Infinity }) => waitMs));
      if (waitMs === 0) this.#open(controller);
      if (waitMs === 0 || waitMs === Infinity) continue;
      const { since = now, timer: before } = this.#waits.get(controller) ?? {};
      before?.cancel();
      const leftMs = Math.max(0, since + waitMs - now);
      const timer = this.#clock.setTimer(leftMs, () => this.#open(controller));
      this.#waits.set(controller, { since, timer });
    }
  }

  #open(controller: Pick<Controller, "kinds" | "open">): void {
    this.#closed.delete(controller);
    this.#waits.get(controller)?.timer.cancel();
    controller.open();
    if (this.#closed.size === 0) this.#onAllOpen();
  }
}

/**
 * Reads the addresses of the machine now and at an interval, once for all controllers, because each
 * wake-up of an idle node costs. The kernel reports changes on netlink sockets only, which Deno does not
 * have.
 */
export function watchInterfaces(
  { clock, logger, network }: {
    readonly clock: Clock;
    readonly logger: Logger;
    readonly network: Pick<Network, "interfaceAddresses">;
  },
  controllers: readonly Pick<Controller, "onInterfaceAddresses" | "ownsAddress">[],
): Disposable {
  let timer: Timer | undefined;
  const read = () => {
    // First, so that an exception cannot end the watch.
    timer = clock.setTimer(INTERFACE_PERIOD_MS, read);
    let addresses: readonly InterfaceAddress[];
    try {
      addresses = network.interfaceAddresses();
    } catch (error) {
      // Reading takes a file descriptor, and none may be left.
      const message = "Cannot read the addresses of this machine; the last known ones stay in use";
      return logger.warn(message, { error });
    }
    // What a controller added to an interface is no address of the node.
    const sorted = addresses
      .filter((each) => !controllers.some((owner) => owner.ownsAddress?.(each)))
      .toSorted((one, other) => one.address < other.address ? -1 : 1);
    for (const controller of controllers) controller.onInterfaceAddresses(sorted);
  };
  read();
  return { [Symbol.dispose]: () => timer?.cancel() };
}

/**
 * Collects garbage once, after the first complete sync of the loops. V8 lets the heap grow to a multiple
 * of what it needs, and would keep what only the start needed until the next collection, perhaps for
 * hours.
 */
export class StartCollection implements SyncListener, Disposable {
  readonly #clock: Clock;
  readonly #collect: () => void;
  readonly #complete = new Set<string>();
  #timer: Timer | undefined;

  constructor(clock: Clock, collect: () => void) {
    this.#clock = clock;
    this.#collect = collect;
  }

  on(event: Parameters<SyncListener["on"]>[0]): void {
    if (event.kind !== "synced" || !event.isComplete) return;
    const name = loopText(event.loop);
    if (this.#complete.has(name)) return;
    this.#complete.add(name);
    this.#timer?.cancel();
    this.#timer = this.#clock.setTimer(COLLECTION_DELAY_MS, this.#collect);
  }

  [Symbol.dispose](): void {
    this.#timer?.cancel();
  }
}
