import type { ObservedRun, RunTools, ToolEdges } from "../../app/run/run_tools.ts";
import { RunChanges } from "../changes/run_changes.ts";
import { byGravity } from "../doctor/doctor_report.ts";
import { relayFindings } from "../doctor/examine_relay.ts";
import { createStatusPage } from "../status/page/status_page.ts";
import { startControlServer } from "./control_server.ts";
import type { ToolsOf } from "./controller_tools.ts";
import { Introspection } from "./introspection.ts";
import { serviceRoutes } from "./service_routes.ts";

/** Creates the change log, the status page and the control socket of a run. */
export function createRunTools(edges: ToolEdges, toolsOf: ToolsOf): RunTools {
  const { clock, hostChecks, logger, openFiles } = edges;
  const changes = new RunChanges({ clock });
  const startedAt = new Date(clock.wallNow()).toISOString();
  const introspect = (run: ObservedRun) =>
    new Introspection(edges, { ...run, changes, startedAt, toolsOf });
  return {
    changes,
    pages(run, signal) {
      const { configuration: { mode, proxy, relay } } = run;
      if (!relay.statusPage) return undefined;
      const introspection = introspect(run);
      return createStatusPage({ clock }, {
        status: (options) => introspection.status(options),
        changes: () => changes.recent(),
        async findings() {
          const status = await introspection.status({ brief: true });
          const { annotations: nodeAnnotations } = status.node;
          const networkPolicy = proxy.networkPolicy.enabled;
          const found = await hostChecks.findings({
            ...{ mode, networkPolicy, signal },
            ...(nodeAnnotations && { nodeAnnotations }),
          });
          return byGravity([...found, ...relayFindings(status)]);
        },
      });
    },
    openControl(run) {
      const { routes, messages } = introspect(run);
      const ofOthers = run.others.map((each) => toolsOf(each, run, edges).routes);
      return startControlServer({
        path: run.configuration.relay.controlSocket,
        routes: Object.assign({}, routes, serviceRoutes(clock, run), ...ofOthers),
        messages,
        bounds: openFiles.httpBounds,
        onRefused: () => openFiles.countRefused("control"),
        logger,
      });
    },
  };
}
