import type { ObservedRun, RunTools, ToolEdges } from "../../app/run/run_tools.ts";
import { absolutePaths } from "../../config/absolute_paths.ts";
import { VERSION } from "../../config/version.ts";
import type { Controller } from "../../engine/controller.ts";
import { ChangeLog } from "../changes/change_log.ts";
import { byGravity } from "../doctor/doctor_report.ts";
import { dumpRunning } from "../dump/collect_dump.ts";
import { createStatusPage } from "../status/page/status_page.ts";
import type { StatusReport } from "../status/status_report.ts";
import { BadQuestion, type ControlRoutes, startControlServer } from "./control_server.ts";
import type { ToolsOf } from "./controller_tools.ts";
import { sampleTraffic, trafficTotals } from "../status/traffic.ts";
import { explain, serviceRoutes } from "./service_routes.ts";

/** The change log, the status page and the control socket of a run. Nothing is read until it is asked for. */
export class ToolsOfRun implements RunTools {
  readonly changes: ChangeLog;
  readonly #edges: ToolEdges;
  readonly #toolsOf: ToolsOf;
  /** RFC 3339. */
  readonly #startedAt: string;

  constructor(edges: ToolEdges, toolsOf: ToolsOf) {
    this.changes = new ChangeLog(edges);
    this.#edges = edges;
    this.#toolsOf = toolsOf;
    this.#startedAt = new Date(edges.clock.wallNow()).toISOString();
  }

  pages(run: ObservedRun, signal: AbortSignal): ReturnType<RunTools["pages"]> {
    const { configuration: { mode, proxy, relay } } = run;
    if (!relay.statusPage) return undefined;
    return createStatusPage(this.#edges, {
      status: (options) => this.#status(run, options),
      changes: () => this.changes.recent(),
      traffic: run.traffic && sampleTraffic(this.#edges.clock, run.traffic, signal),
      explain: (query) => explain(this.#edges.clock, run, query),
      findings: async () => {
        const { annotations: nodeAnnotations } = run.startUp.node;
        const networkPolicy = proxy.networkPolicy.enabled;
        const found = await this.#edges.hostChecks.findings({
          ...{ mode, networkPolicy, signal },
          ...(nodeAnnotations && { nodeAnnotations }),
        });
        return byGravity(found);
      },
    });
  }

  openControl(run: ObservedRun): ReturnType<RunTools["openControl"]> {
    const { logger, openFiles } = this.#edges;
    return startControlServer({
      path: run.configuration.relay.controlSocket,
      routes: this.routes(run),
      bounds: openFiles.httpBounds,
      onRefused: () => openFiles.countRefused("control"),
      logger,
    });
  }

  /** The answers by path. Only a repair, by POST, changes anything. */
  routes(run: ObservedRun): ControlRoutes {
    const { clock } = this.#edges;
    return Object.assign(
      {
        "/status": (query) => this.#status(run, { brief: query.has("brief") }),
        // A separate function, so that its exceptions become rejections.
        "/changes": async (query) =>
          await Promise.resolve(this.changes.recent(numberOf(query, "last"))),
        "/flags": () => Promise.resolve(absolutePaths(run.configuration.flags, Deno.cwd())),
        "/dump": (query) => this.#dump(run, query.has("inputs")),
      } satisfies ControlRoutes,
      serviceRoutes(clock, run, this.changes),
      ...run.others.map((each) => this.#toolsOfIn(run)(each).routes),
    );
  }

  #toolsOfIn(run: ObservedRun) {
    return (controller: Controller) => this.#toolsOf(controller, run, this.#edges, this.changes);
  }

  async #status(
    run: ObservedRun,
    options: { readonly brief: boolean },
  ): Promise<StatusReport> {
    const { services, others, startUp, eventLoop, manager, source } = run;
    const { families } = await services.status(options);
    const controllers = [];
    for (const controller of others) controllers.push(await controller.status(options));
    return {
      version: VERSION,
      pid: this.#edges.process.pid,
      startedAt: this.#startedAt,
      phase: manager.phase,
      largestEventLoopDelayMs: Math.round(eventLoop.largestMs),
      node: startUp.node,
      sources: source.status(),
      hostSettings: startUp.hostSettings,
      ...(run.traffic && { traffic: trafficTotals(run.traffic) }),
      families,
      ...(controllers.length > 0 && { controllers }),
    };
  }

  /** The dump for `jsonPieces()`, or what planning needs of it. */
  async #dump(run: ObservedRun, onlyInputs: boolean): Promise<unknown> {
    const status = onlyInputs ? undefined : await this.#status(run, { brief: false });
    const collected = status && { status, changes: this.changes.recent() };
    return dumpRunning(this.#edges, { ...run, toolsOf: this.#toolsOfIn(run) }, collected);
  }
}

/** Parses an optional whole number from 1. */
function numberOf(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null) return undefined;
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new BadQuestion(`Cannot use '${text}' for '${name}': expected a whole number from 1`);
}
