import type { ObservedRun, RunTools, ToolEdges } from "../../app/run/run_tools.ts";
import { FLAG_ROWS, type FlagValues } from "../../config/flags.ts";
import { VERSION } from "../../config/version.ts";
import { ChangeLog } from "../changes/change_log.ts";
import { dumpRunning } from "../dump/collect_dump.ts";
import { createStatusPage } from "../status/page/status_page.ts";
import type { StatusReport } from "../status/status_report.ts";
import { BadQuestion, startControlServer } from "./control_server.ts";
import type { Routes } from "./routes.ts";
import { sampleTraffic, trafficTotals } from "../status/traffic.ts";
import { explain, serviceRoutes } from "./service_routes.ts";

/** The change log, the status page and the control socket of a run. Nothing is read until it is asked for. */
export class ToolsOfRun implements RunTools {
  readonly changes: ChangeLog;
  readonly #edges: ToolEdges;
  /** RFC 3339. */
  readonly #startedAt: string;

  constructor(edges: ToolEdges) {
    this.changes = new ChangeLog(edges);
    this.#edges = edges;
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
      findings: () => {
        const { annotations: nodeAnnotations } = run.startUp.node;
        return this.#edges.hostChecks.findings({
          ...{ mode, networkPolicy: proxy.networkPolicy.enabled, signal },
          ...(nodeAnnotations && { nodeAnnotations }),
        });
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
  routes(run: ObservedRun): Routes {
    return {
      "/status": ({ brief }) => this.#status(run, { brief: brief !== undefined }),
      // A separate function, so that its exceptions become rejections.
      "/changes": async ({ last }) => await Promise.resolve(this.changes.recent(numberOf(last))),
      "/flags": () => Promise.resolve(absolutePaths(run.configuration.flags, Deno.cwd())),
      "/dump": ({ inputs }) => this.#dump(run, inputs !== undefined),
      ...serviceRoutes(this.#edges, run, this.changes),
    };
  }

  async #status(
    run: ObservedRun,
    options: { readonly brief: boolean },
  ): Promise<StatusReport> {
    const { services, others, startUp, eventLoop, manager, sources } = run;
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
      sources: sources.flatMap((each) => each.status()),
      hostSettings: services.hostSettings.outcomes,
      ...(run.traffic && { traffic: trafficTotals(run.traffic) }),
      families,
      ...(controllers.length > 0 && { controllers }),
    };
  }

  /** The dump for `jsonPieces()`, or what planning needs of it. */
  async #dump(run: ObservedRun, onlyInputs: boolean): Promise<unknown> {
    const status = onlyInputs ? undefined : await this.#status(run, { brief: false });
    const collected = status && { status, changes: this.changes.recent() };
    return dumpRunning(this.#edges, run, collected);
  }
}

/** Parses an optional whole number from 1. */
function numberOf(last: string | undefined): number | undefined {
  if (last === undefined) return undefined;
  if (/^[1-9]\d{0,8}$/.test(last)) return Number(last);
  throw new BadQuestion(`Cannot use '${last}' for 'last': expected a whole number from 1`);
}

/** Placeholders of flags with paths. */
const PATHS: readonly (string | undefined)[] = ["FILE", "PATH", "DIR"];

/** Returns the flags with absolute paths, for a program that runs in another folder. */
function absolutePaths(flags: FlagValues, folder: string): FlagValues {
  const absolute = (path: unknown) =>
    typeof path !== "string" || path === "" || path.startsWith("/") ? path : `${folder}/${path}`;
  const changed: Record<string, unknown> = { ...flags };
  for (const { name, value } of FLAG_ROWS) {
    const given = flags[name];
    if (given === undefined || !PATHS.includes(value)) continue;
    changed[name] = Array.isArray(given) ? given.map(absolute) : absolute(given);
  }
  return changed as FlagValues;
}
