import type { ChangeLog } from "../changes/change_log.ts";
import { type ControlServer, startControlServer } from "../control/control_server.ts";
import type { Dependencies } from "../dependencies.ts";
import type { EventLoopMonitor } from "../run/event_loop_monitor.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import { collectMetrics } from "./collect_metrics.ts";
import type { Introspection } from "../control/introspection.ts";
import type { ObjectSource } from "../run/object_source.ts";
import { createRunningPage } from "../status/page/status_page.ts";
import {
  type ProxyServersDependencies,
  type ProxyServersOptions,
  startProxyServers,
} from "./proxy_servers.ts";
import type { StartUp } from "../run/start_up.ts";
import type { TaskGroup } from "../run/task_group.ts";

/** What the servers need. */
type RunningServersDependencies =
  & ProxyServersDependencies
  & Pick<Dependencies, "hostChecks" | "uncaught">;

/** The parts of the program that answer. */
interface RunningServersOptions extends Omit<ProxyServersOptions, "gather" | "localPages"> {
  readonly families: readonly FamilyProxy[];
  readonly source: () => ObjectSource | undefined;
  readonly eventLoop: EventLoopMonitor;
  readonly startUp: StartUp;
  readonly introspection: Introspection;
  readonly changes: ChangeLog;
}

/** Starts them. Rejects with a ControlError when the control socket cannot be had. */
export async function startRunningServers(
  dependencies: RunningServersDependencies,
  tasks: TaskGroup,
  options: RunningServersOptions,
): Promise<ControlServer> {
  const { configuration: { relay, mode }, metrics, introspection, changes } = options;
  const { signal } = tasks;
  startProxyServers(dependencies, tasks, {
    ...options,
    ...(relay.statusPage && {
      localPages: createRunningPage(dependencies, { introspection, changes, mode, signal }),
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
