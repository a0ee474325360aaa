import type { ChangeLog } from "../../tools/changes/change_log.ts";
import { type ControlServer, startControlServer } from "../../tools/control/control_server.ts";
import type { RelayWorkers } from "../../os/worker_pool.ts";
import type { Dependencies } from "../dependencies.ts";
import { type IntrospectedParts, Introspection } from "../../tools/control/introspection.ts";
import type { Controller, ControlRoutes } from "../../controller/controller.ts";
import type { RunConfiguration } from "../run/run_configuration.ts";
import type { ServiceController } from "../service/service_controller.ts";
import type { ObjectSource } from "../run/object_source.ts";
import { createStatusPage, type LocalPages } from "../../tools/status/page/status_page.ts";
import { byGravity } from "../../tools/doctor/doctor_report.ts";
import { relayFindings } from "../../tools/doctor/examine_relay.ts";
import {
  type ProxyServersDependencies,
  type ProxyServersOptions,
  startProxyServers,
} from "./proxy_servers.ts";
import type { TaskGroup } from "../../controller/task_group.ts";

type RunningServersDependencies =
  & ProxyServersDependencies
  & Pick<Dependencies, "hostChecks" | "process" | "uncaught">
  & { readonly workers?: RelayWorkers | undefined };

interface RunningServersOptions
  extends
    Omit<ProxyServersOptions, "gather" | "localPages" | "handover" | "current">,
    Omit<IntrospectedParts, "startedAt" | "services" | "configuration"> {
  readonly configuration: RunConfiguration;
  readonly services: ServiceController;
  readonly controllers: readonly Controller[];
  readonly source: ObjectSource;
  readonly changes: ChangeLog;
}

/**
 * Starts all servers of the running program: health and metrics, the status page and the control socket.
 * Rejects with a ControlError if the control socket cannot be opened.
 */
export async function startRunningServers(
  dependencies: RunningServersDependencies,
  tasks: TaskGroup,
  options: RunningServersOptions,
): Promise<ControlServer> {
  const { configuration: { relay }, services: { handover }, controllers } = options;
  const startedAt = new Date(dependencies.clock.wallNow()).toISOString();
  const introspection = new Introspection(dependencies, { ...options, startedAt });
  startProxyServers(dependencies, tasks, {
    ...options,
    handover,
    ...(relay.statusPage && {
      localPages: createRunningPage(dependencies, {
        ...options,
        introspection,
        signal: tasks.signal,
      }),
    }),
    gather: () => collectMetrics(dependencies, options),
  });
  const { routes, messages } = introspection;
  const controllerRoutes: ControlRoutes[] = controllers.map(({ routes = {} }) => routes);
  const { logger, openFiles } = dependencies;
  return await startControlServer({
    path: relay.controlSocket,
    routes: Object.assign({}, routes, ...controllerRoutes),
    messages,
    bounds: openFiles.httpBounds,
    onRefused: () => openFiles.countRefused("control"),
    logger,
  });
}

function createRunningPage(
  { clock, hostChecks }: RunningServersDependencies,
  { introspection, changes, configuration: { mode, proxy }, signal }: RunningServersOptions & {
    readonly introspection: Introspection;
    readonly signal: AbortSignal;
  },
): LocalPages {
  return createStatusPage({ clock }, {
    status: (options) => introspection.status(options),
    changes: () => changes.recent(),
    async findings() {
      const status = await introspection.status({ brief: true });
      const { annotations: nodeAnnotations } = status.node;
      const own = relayFindings(status);
      const networkPolicy = proxy.networkPolicy.enabled;
      const options = { mode, networkPolicy, signal, ...(nodeAnnotations && { nodeAnnotations }) };
      return byGravity([...await hostChecks.findings(options), ...own]);
    },
  });
}

/** Sets the metrics that are only collected for a scrape. */
async function collectMetrics(
  { openFiles, uncaught, workers }: RunningServersDependencies,
  { controllers, eventLoop, metrics, source, startUp }: RunningServersOptions,
): Promise<void> {
  metrics.setProcess(openFiles, {
    uncaughtErrors: uncaught?.count ?? 0,
    ...(workers?.kind === "threads" && { workerRestarts: workers.pool.restarts }),
  });
  metrics.its["kube_relay_event_loop_delay_max_seconds"].set(eventLoop.largestMs / 1000);
  const refused = startUp.hostSettings.filter(({ state }) => state === "refused");
  metrics.its["kube_relay_host_settings_refused"].set(refused.length);
  for (const [resource, age] of source.ages()) metrics.setSourceAge(resource, age);
  for (const [resource, counts] of source.repetitions()) metrics.setRepetitions(resource, counts);
  for (const controller of controllers) await controller.collectMetrics?.();
}
