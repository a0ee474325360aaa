/**
 * A second controller, made up: it lights lanterns, with a plan, a data plane and a loop of its own.
 *
 * @module
 */
import { objectKey } from "../../../lib/api/kind.ts";
import type { LoopListener, NamedChange, NamedItem } from "../../../lib/app/change_listener.ts";
import type { ControllerDefinition, ControllerParts } from "../../../lib/app/controllers.ts";
import {
  type ControllerTools,
  controllerTools,
  type ToolsOf,
} from "../../../lib/tools/control/controller_tools.ts";
import { fields, ownText, table } from "../../../lib/tools/dump/dump_value.ts";
import type { Controller } from "../../../lib/engine/controller.ts";
import type { CleanupReport, DataPlane, SyncReport } from "../../../lib/engine/data_plane.ts";
import type { LoopId } from "../../../lib/engine/loop_id.ts";
import { SyncLoop } from "../../../lib/engine/sync_loop.ts";
import { changeHandler } from "../../../lib/kube/informer.ts";
import type { InterfaceAddress } from "../../../lib/os/network.ts";
import { LANTERN } from "../builders/lantern.ts";

/** A name that no other controller of a test has. */
const LOOP: LoopId = { controller: "routing", family: "IPv4" };

interface LanternChanges {
  readonly changed: ReadonlySet<string>;
}

type Streets = ReadonlyMap<string, string>;

/**
 * A data plane that lights streets. Refuses unknown streets; a sync waits for {@linkcode hanging}.
 */
export class LanternPlane implements DataPlane<Streets, LanternChanges, SyncReport<string>> {
  readonly lit = new Map<string, string>();
  hanging: Promise<void> = Promise.resolve();

  async sync(plan: Streets, { changed }: LanternChanges): Promise<SyncReport<string>> {
    await this.hanging;
    for (const key of changed) {
      const street = plan.get(key);
      if (street === undefined) this.lit.delete(key);
      else if (street !== "Nowhere") this.lit.set(key, street);
    }
    const quarantined = [...plan].filter(([, street]) => street === "Nowhere")
      .map(([key]) => ({ key, address: "the corner", reason: "no such street" }));
    return { full: false, operations: { lights: changed.size }, quarantined };
  }

  start = () => Promise.resolve();
  drain = () => Promise.resolve();
  recheck(): void {}
  cleanup = (): Promise<CleanupReport> => Promise.resolve({ removed: [], failed: [] });
  previewCleanup = this.cleanup;
  [Symbol.asyncDispose] = () => Promise.resolve();
}

/** Plans what changed since the last good sync. */
class LanternPlanner {
  readonly plan: Streets;
  readonly #parts: { readonly changed: Set<string>; readonly recorder: { drained(): void } };

  constructor(
    plan: Streets,
    parts: { readonly changed: Set<string>; readonly recorder: { drained(): void } },
  ) {
    this.plan = plan;
    this.#parts = parts;
  }

  get pending(): boolean {
    return this.#parts.changed.size > 0;
  }

  collectChanges(again: readonly string[]) {
    const { changed, recorder } = this.#parts;
    recorder.drained();
    const changes = { changed: new Set([...changed, ...again]) };
    return Promise.resolve({ changes, problems: [] });
  }
}

const TEXTS = {
  synced: "Lit lanterns",
  failed: "Cannot light lanterns",
  quarantined: "Lantern is in quarantine",
  released: "Lantern is out of quarantine",
  item: "lantern",
};

/** Records the calls of the run. */
class LanternController implements Controller {
  readonly name = LOOP.controller;
  readonly kinds = [{ spec: LANTERN }];
  readonly plane: LanternPlane;
  readonly #calls: string[];
  readonly #recorder: LoopListener<NamedChange, NamedItem>;
  readonly streets = new Map<string, string>();
  readonly #changed = new Set<string>();
  readonly #loop: SyncLoop<Streets, LanternChanges, string, SyncReport<string>>;

  constructor(parts: ControllerParts, plane: LanternPlane, calls: string[]) {
    this.plane = plane;
    this.#calls = calls;
    const recorder = parts.changes.follow(LOOP, 0);
    this.#recorder = recorder;
    this.#loop = new SyncLoop(parts, {
      id: LOOP,
      dataPlane: plane,
      source: new LanternPlanner(this.streets, { changed: this.#changed, recorder }),
      listeners: [{
        on: (event) => {
          if (event.kind !== "synced") return;
          for (const key of event.changes.changed) this.#changed.delete(key);
        },
      }, recorder],
      texts: TEXTS,
      periods: { minPeriodMs: 0, maxPeriodMs: 3_600_000, retryMs: () => 1_000 },
    });
    parts.informers.subscribe(
      LANTERN,
      {},
      changeHandler((previous, current) =>
        this.#take(objectKey(current ?? previous!), current?.spec.street)
      ),
    );
  }

  #take(key: string, street: string | undefined): void {
    const previous = this.streets.get(key);
    if (street === undefined) this.streets.delete(key);
    else this.streets.set(key, street);
    this.#changed.add(key);
    this.#recorder.seen({ kind: LANTERN.kind, name: key, words: [], previous, current: street });
    this.#recorder.planned(
      previous === undefined ? undefined : { name: key, words: [] },
      street === undefined ? undefined : { name: key, words: [`in ${street} Street`] },
    );
    this.#loop.request();
  }

  get activity() {
    return [this.#loop.activity];
  }

  start(): Promise<void> {
    this.#calls.push("start lanterns");
    return this.#loop.start();
  }

  open(): void {
    this.#calls.push("open lanterns");
    this.#loop.open();
  }

  onInterfaceAddresses(addresses: readonly InterfaceAddress[]): void {
    if (addresses.length > 0) this.#calls.push("addresses for lanterns");
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    this.#calls.push("stop lanterns");
  }

  drain(): Promise<void> {
    this.#calls.push("drain lanterns");
    return Promise.resolve();
  }

  status() {
    const families = [this.#loop.status("gas lights")];
    const facts = [{ name: "Lanterns", text: `${this.plane.lit.size} lit` }];
    return Promise.resolve({ controller: this.name, families, facts });
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#calls.push("dispose of lanterns");
    return Promise.resolve();
  }
}

/** The tools of lanterns. */
export function lanternTools(...asked: Parameters<ToolsOf>): ControllerTools {
  const [controller] = asked;
  if (!(controller instanceof LanternController)) return controllerTools(...asked);
  const { plane, streets } = controller;
  return {
    routes: { "/lanterns": () => Promise.resolve([...plane.lit.keys()]) },
    dumped: () => ({
      schema: fields({ gas: ownText, streets: table(ownText) }),
      value: {
        ...{ gas: "on", secret: "s3cret" },
        streets: Object.fromEntries(
          [...streets].map(([key, street]) => [key.replace("/", "."), street]),
        ),
      },
    }),
  };
}

/** The controller for a run; `calls` records its actions. */
export function lanternController(
  plane: LanternPlane,
  { calls, isEnabled = true }: { readonly calls: string[]; readonly isEnabled?: boolean },
): ControllerDefinition {
  return {
    name: LOOP.controller,
    isEnabled: () => isEnabled,
    create: (parts) => new LanternController(parts, plane, calls),
    async *cleanUp() {},
  };
}
