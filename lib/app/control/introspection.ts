import type { Node } from "../../api/objects.ts";
import type { Informers } from "../../kube/informer.ts";
import type { Clock } from "../../os/clock.ts";
import { serviceKey } from "../../proxy/service_port_name.ts";
import { answerFlow } from "./answer_flow.ts";
import type { ChangesReport } from "../changes/change_entry.ts";
import type { ChangeLog } from "../changes/change_log.ts";
import { nameRules } from "../changes/name_rules.ts";
import { parseRepairNote } from "../changes/repair_note.ts";
import { BadQuestion, type ControlMessages, type ControlRoutes } from "./control_server.ts";
import type { ProcessInfo } from "../dependencies.ts";
import { RunningComparison } from "../diff/compare_running.ts";
import { dumpRunning } from "../dump/collect_dump.ts";
import type { EventLoopMonitor } from "../run/event_loop_monitor.ts";
import { explainRunning } from "../explain/explain_running.ts";
import type { FamilyProxy } from "../service/family_proxy.ts";
import type { ObjectSource } from "../run/object_source.ts";
import type { RunConfiguration } from "../run/run_configuration.ts";
import type { StartUp } from "../run/start_up.ts";
import { collectFamilyStatus } from "../status/status_collector.ts";
import type { StatusReport } from "../status/status_report.ts";
import { VERSION } from "../cli/version.ts";

/** The parts of the program that are asked. */
export interface IntrospectedParts {
  readonly families: readonly FamilyProxy[];
  readonly startUp: Pick<StartUp, "node" | "hostSettings">;
  readonly eventLoop: Pick<EventLoopMonitor, "largestMs">;
  /** RFC 3339. */
  readonly startedAt: string;
  readonly changes: Pick<ChangeLog, "recent" | "repaired">;
  readonly phase: () => string;
  /** Absent until it has been made. */
  readonly source: () => ObjectSource | undefined;
  /** What is in force now: a file of the configuration may have changed since the start. */
  readonly configuration: () => Pick<RunConfiguration, "proxy" | "relay" | "mode">;
  readonly informers: () => Informers;
  /** The own Node as it was last seen; `undefined` before. */
  readonly node: () => Node | undefined;
}

/** Names that a shell is offered; a person types another letter first. */
const MOST_NAMES = 1000;

/** Answers from what the parts know. */
export class Introspection {
  readonly #dependencies: {
    readonly clock: Clock;
    readonly process: Pick<ProcessInfo, "pid" | "kernelRelease">;
  };
  readonly #parts: IntrospectedParts;
  readonly #comparison: RunningComparison;

  constructor(
    dependencies: {
      readonly clock: Clock;
      readonly process: Pick<ProcessInfo, "pid" | "kernelRelease">;
    },
    parts: IntrospectedParts,
  ) {
    this.#dependencies = dependencies;
    this.#parts = parts;
    this.#comparison = new RunningComparison(dependencies, parts);
  }

  /** The questions that the control socket answers. */
  get routes(): ControlRoutes {
    return {
      "/status": (query) => this.status({ brief: query.has("brief") }),
      "/changes": (query) =>
        this.changes({ last: numberOf(query, "last"), names: query.has("rules") }),
      "/services": (query) => this.services(query.get("prefix") ?? ""),
      "/dump": (query) => this.dump({ onlyInputs: query.has("inputs") }),
      "/flow": (query) =>
        Promise.resolve(answerFlow({ ...this.#dependencies, ...this.#parts }, query)),
      "/difference": (query, signal) => this.#comparison.answer(query, signal),
      "/explain": (query) => explainRunning(this.#dependencies, this.#parts, query),
    };
  }

  /** What the control socket may be told. */
  get messages(): ControlMessages {
    return { "/repair": (message) => this.#repaired(message) };
  }

  /** Names of Services that begin so, sorted; of very many the first ones that are found. */
  async services(prefix: string): Promise<readonly string[]> {
    const names = new Set<string>();
    let seen = 0;
    for (const { pipeline } of this.#parts.families) {
      for (const { name } of pipeline.plan.services.values()) {
        if (++seen % 256 === 0) await this.#dependencies.clock.yieldToEventLoop();
        const text = serviceKey(name);
        if (text.startsWith(prefix)) names.add(text);
        if (names.size >= MOST_NAMES) break;
      }
    }
    return [...names].sort();
  }

  /** Everything for `dump`, as `jsonPieces()` takes it; `onlyInputs`: what it is planned from. */
  async dump({ onlyInputs }: { readonly onlyInputs: boolean }): Promise<unknown> {
    if (onlyInputs) return dumpRunning(this.#dependencies, this.#parts, undefined);
    const status = await this.status({ brief: false });
    const changes = await this.changes({ names: true });
    return dumpRunning(this.#dependencies, this.#parts, { status, changes });
  }

  /** The newest entries of the change log; `names`: with the rules of the last ServicePorts in it. */
  async changes(
    { last, names }: { readonly last?: number | undefined; readonly names: boolean },
  ): Promise<ChangesReport> {
    const { changes, families } = this.#parts;
    const report = changes.recent(last);
    return names ? await nameRules({ ...this.#dependencies, families }, report) : report;
  }

  /** One entry of the change log, and nothing else. */
  #repaired(message: unknown): Promise<unknown> {
    const parsed = parseRepairNote(message);
    if ("problem" in parsed) {
      return Promise.reject(new BadQuestion(`Cannot note this repair: wrong is ${parsed.problem}`));
    }
    this.#parts.changes.repaired(parsed.note);
    return Promise.resolve({ noted: true });
  }

  /** Everything for `status`; `brief` leaves the Services out. */
  async status(options: { readonly brief: boolean }): Promise<StatusReport> {
    const { families: running, startUp, eventLoop, startedAt, phase, source } = this.#parts;
    const families = [];
    for (const family of running) {
      families.push(await collectFamilyStatus(this.#dependencies, family, options));
    }
    return {
      version: VERSION,
      pid: this.#dependencies.process.pid,
      startedAt,
      phase: phase(),
      largestEventLoopDelayMs: Math.round(eventLoop.largestMs),
      node: startUp.node,
      sources: source()?.status() ?? [],
      hostSettings: startUp.hostSettings,
      families,
    };
  }
}

/** A whole number from 1, where the question has one. */
function numberOf(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name);
  if (text === null) return undefined;
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new BadQuestion(`Cannot use '${text}' for '${name}': expected a whole number from 1`);
}
