import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { OpenFiles } from "../../os/open_files.ts";
import type { HostSettingOutcome } from "../../proxy/host_setting.ts";
import type { ChangeLog } from "../changes/change_log.ts";
import { type ControlServer, startControlServer } from "../control/control_server.ts";
import type { Dependencies } from "../dependencies.ts";
import type { EventLoopMonitor } from "../run/event_loop_monitor.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import type { Introspection } from "../control/introspection.ts";
import type { ObjectSource } from "../run/object_source.ts";
import { createStatusPage, type LocalPages } from "../status/page/status_page.ts";
import { byGravity } from "../doctor/doctor_report.ts";
import { relayFindings } from "../doctor/examine_relay.ts";
import {
  type ProxyServersDependencies,
  type ProxyServersOptions,
  startProxyServers,
} from "./proxy_servers.ts";
import type { StartUp } from "../run/start_up.ts";
import type { TaskGroup } from "../../controller/task_group.ts";

type RunningServersDependencies =
  & ProxyServersDependencies
  & Pick<Dependencies, "hostChecks" | "uncaught">;

interface RunningServersOptions extends Omit<ProxyServersOptions, "gather" | "localPages"> {
  readonly families: readonly FamilyProxy[];
  readonly source: () => ObjectSource | undefined;
  readonly eventLoop: EventLoopMonitor;
  readonly startUp: StartUp;
  readonly introspection: Introspection;
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
  const { configuration: { relay }, metrics, introspection } = options;
  startProxyServers(dependencies, tasks, {
    ...options,
    ...(relay.statusPage && {
      localPages: createRunningPage(dependencies, { ...options, signal: tasks.signal }),
    }),
    gather: () =>
      collectMetrics(metrics, {
        families: options.families,
        source: options.source(),
        largestDelayMs: options.eventLoop.largestMs,
        hostSettings: options.startUp.hostSettings,
        openFiles: dependencies.openFiles,
        uncaughtErrors: dependencies.uncaught?.count ?? 0,
      }),
  });
  const { routes, messages } = introspection;
  const { logger, openFiles } = dependencies;
  return await startControlServer({
    path: relay.controlSocket,
    routes,
    messages,
    bounds: openFiles.httpBounds,
    onRefused: () => openFiles.countRefused("control"),
    logger,
  });
}

interface MetricSources {
  readonly families: readonly FamilyProxy[];
  /** `undefined` while it is being opened. */
  readonly source: ObjectSource | undefined;
  readonly largestDelayMs: number;
  readonly hostSettings: readonly HostSettingOutcome[];
  readonly openFiles: OpenFiles;
  readonly uncaughtErrors: number;
}

function createRunningPage(
  { clock, hostChecks }: RunningServersDependencies,
  { introspection, changes, configuration: { mode, proxy }, signal }: RunningServersOptions & {
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
  metrics: ProxyMetrics,
  { families, source, largestDelayMs, hostSettings, openFiles, uncaughtErrors }: MetricSources,
): Promise<void> {
  metrics.setOpenFiles(openFiles);
  metrics.setUncaughtErrors(uncaughtErrors);
  metrics.setLargestEventLoopDelay(largestDelayMs / 1000);
  const refused = hostSettings.filter(({ state }) => state === "refused");
  metrics.setHostSettingsRefused(refused.length);
  for (const [resource, age] of source?.ages() ?? []) metrics.setSourceAge(resource, age);
  for (const [resource, counts] of source?.repetitions() ?? []) {
    metrics.setRepetitions(resource, counts);
  }
  for (const { family, pipeline, backend } of families) {
    const { services, endpoints } = pipeline;
    // Counters that cannot be read keep their last value; the backend logs the reason at a sync.
    const { connections, counting } = backend;
    const rules = await counting?.ruleCounters().catch(() => undefined);
    if (rules) metrics.setRuleCounters(family, rules);
    await counting?.refreshTraffic().catch(() => undefined);
    if (connections) metrics.setTraffic(family, connections.counters);
    metrics.setChanges(family, {
      servicesPending: services.pending,
      servicesTotal: services.total,
      endpointsPending: endpoints.pending,
      endpointsTotal: endpoints.total,
    });
  }
}
