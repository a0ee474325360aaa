import type { ObjectProblem } from "../../api/problem.ts";
import type { SyncReport } from "../../engine/data_plane.ts";
import type { LoopId } from "../../engine/loop_id.ts";
import type { LoopTexts } from "../../engine/sync_event.ts";
import { SyncLoop } from "../../engine/sync_loop.ts";
import { retryBackoff } from "../../engine/sync_runner.ts";
import { messageOf } from "../../log/message_of.ts";
import type { LoopListener, NamedChange, NamedItem } from "../change_listener.ts";
import type { ControllerParts } from "../controllers.ts";

/** Time between two syncs: a withdrawal has to be sent within a second. */
const MIN_SYNC_PERIOD_MS = 300;

/** How a part plans, and what carries its plans out. */
interface PartLoopOptions<Plan> {
  readonly controller: LoopId["controller"];
  /** The key under which the whole part is in quarantine. */
  readonly key: string;
  readonly texts: Omit<LoopTexts, "item">;
  /** Longest time from one sync to the next. */
  readonly maxPeriodMs: number;
  readonly backend: { sync(plan: Plan): Promise<SyncReport<string>> };
  /** The last plan; absent until the machine and its Node are known. */
  readonly plan: () => Plan | undefined;
  /** Whether a plan is absent because the own Node is. */
  readonly lacksNode: () => boolean;
  /** Brings the plan up to date, and records its effects. */
  readonly collectChanges: () => Promise<readonly ObjectProblem[]>;
}

/** The loop of a part that has one data plane for both families. */
export class PartLoop<Plan> {
  readonly loop: SyncLoop<{ readonly part: Plan | undefined }, object, string, SyncReport<string>>;
  readonly #recorder: LoopListener<NamedChange, NamedItem>;
  readonly #options: PartLoopOptions<Plan>;
  readonly #nodeName: string;
  #isPending = true;

  constructor(dependencies: ControllerParts, options: PartLoopOptions<Plan>) {
    const { changes, configuration: { families }, nodeName, random } = dependencies;
    const id = { controller: options.controller, family: families[0] ?? "IPv4" };
    this.#options = options;
    this.#nodeName = nodeName;
    this.#recorder = changes.follow(id, MIN_SYNC_PERIOD_MS);
    const isPending = () => this.#isPending;
    this.loop = new SyncLoop(dependencies, {
      id,
      dataPlane: { start: () => Promise.resolve(), sync: ({ part }) => this.#sync(part) },
      source: {
        get plan() {
          return { part: options.plan() };
        },
        get pending() {
          return isPending();
        },
        collectChanges: () => this.#collectChanges(),
      },
      listeners: [this.#recorder],
      texts: { ...options.texts, item: "item" },
      runner: {
        minPeriodMs: MIN_SYNC_PERIOD_MS,
        maxPeriodMs: options.maxPeriodMs,
        retryMs: retryBackoff(random),
      },
    });
  }

  /** Notes a cause, for the change log. */
  seen(cause: NamedChange): void {
    this.#recorder.seen(cause);
  }

  /** Requests a sync. */
  request(cause?: NamedChange): void {
    if (cause) this.seen(cause);
    this.#isPending = true;
    this.loop.request();
  }

  /** Records an effect of the plan. */
  planned(previous: NamedItem | undefined, next: NamedItem | undefined): void {
    this.#recorder.planned(previous, next);
  }

  async #collectChanges() {
    this.#isPending = false;
    this.#recorder.drained();
    return { changes: {}, problems: await this.#options.collectChanges() };
  }

  /** What cannot be applied is no failure of kube-relay, whose Services work. */
  async #sync(plan: Plan | undefined): Promise<SyncReport<string>> {
    const { backend, key, lacksNode } = this.#options;
    if (plan === undefined) {
      const reason = `Node ${this.#nodeName} is not known yet: its addresses are needed`;
      return { full: false, operations: {}, quarantined: lacksNode() ? [{ key, reason }] : [] };
    }
    try {
      return await backend.sync(plan);
    } catch (error) {
      return { full: true, operations: {}, quarantined: [{ key, reason: messageOf(error) }] };
    }
  }
}
