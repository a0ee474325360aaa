import type { Dependencies } from "../../app/dependencies.ts";
import type { ObservedRun } from "../../app/run/run_tools.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import type { ChangeLog } from "../changes/change_log.ts";
import { nameRules } from "../changes/name_rules.ts";
import { parseRepairNote } from "../changes/repair_note.ts";
import { BadQuestion, type ControlMessages, type ControlRoutes } from "./control_server.ts";
import type { ToolsOf } from "./controller_tools.ts";
import { dumpRunning } from "../dump/collect_dump.ts";
import type { StatusReport } from "../status/status_report.ts";
import { VERSION } from "../../config/version.ts";

/** The parts of the running program that the answers come from. */
export interface IntrospectedParts extends ObservedRun {
  /** RFC 3339. */
  readonly startedAt: string;
  readonly changes: Pick<ChangeLog, "recent" | "repaired">;
  readonly toolsOf: ToolsOf;
}

type IntrospectionEdges = Pick<Dependencies, "clock" | "network"> & {
  readonly process: Pick<Dependencies["process"], "pid" | "kernelRelease">;
};

/**
 * Answers requests on the control socket that are of no single controller. A GET request changes nothing, a message only adds to the change
 * log, and none delays a sync.
 */
export class Introspection {
  readonly #dependencies: IntrospectionEdges;
  readonly #parts: IntrospectedParts;

  constructor(dependencies: IntrospectionEdges, parts: IntrospectedParts) {
    this.#dependencies = dependencies;
    this.#parts = parts;
  }

  /** Answers by path, about the run as a whole. */
  get routes(): ControlRoutes {
    return {
      "/status": (query) => this.status({ brief: query.has("brief") }),
      "/changes": (query) =>
        this.changes({ last: numberOf(query, "last"), names: query.has("rules") }),
      "/dump": (query) => this.dump({ onlyInputs: query.has("inputs") }),
    };
  }

  /** Messages by path. */
  get messages(): ControlMessages {
    return { "/repair": (message) => this.#repaired(message) };
  }

  /** Returns the dump for `jsonPieces()`; with `onlyInputs` without status and changes. */
  async dump({ onlyInputs }: { readonly onlyInputs: boolean }): Promise<unknown> {
    if (onlyInputs) return dumpRunning(this.#dependencies, this.#parts, undefined);
    const status = await this.status({ brief: false });
    const changes = await this.changes({ names: true });
    return dumpRunning(this.#dependencies, this.#parts, { status, changes });
  }

  /** Returns the newest entries of the change log; `names` adds rules to the last ServicePorts. */
  async changes(
    { last, names }: { readonly last?: number | undefined; readonly names: boolean },
  ): Promise<ChangesReport> {
    const { changes, services: { families } } = this.#parts;
    const report = changes.recent(last);
    return names ? await nameRules({ ...this.#dependencies, families }, report) : report;
  }

  #repaired(message: unknown): Promise<unknown> {
    const parsed = parseRepairNote(message);
    if ("problem" in parsed) {
      return Promise.reject(new BadQuestion(`Cannot note this repair: invalid ${parsed.problem}`));
    }
    this.#parts.changes.repaired(parsed.note);
    return Promise.resolve({ noted: true });
  }

  /** Returns the status; `brief` omits the Services. */
  async status(options: { readonly brief: boolean }): Promise<StatusReport> {
    const { services, others, startUp, eventLoop, startedAt, manager, source } = this.#parts;
    const { families } = await services.status(options);
    const controllers = [];
    for (const controller of others) controllers.push(await controller.status(options));
    return {
      version: VERSION,
      pid: this.#dependencies.process.pid,
      startedAt,
      phase: manager.phase,
      largestEventLoopDelayMs: Math.round(eventLoop.largestMs),
      node: startUp.node,
      sources: source.status(),
      hostSettings: startUp.hostSettings,
      families,
      ...(controllers.length > 0 && { controllers }),
    };
  }
}

/** Parses an optional whole number from 1. */
function numberOf(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null) return undefined;
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new BadQuestion(`Cannot use '${text}' for '${name}': expected a whole number from 1`);
}
