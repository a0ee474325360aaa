/**
 * Decides when each controller may sync for the first time.
 *
 * @module
 */
import type { KindSpec } from "../../api/kind.ts";
import type { Controller, FollowedKinds } from "../../engine/controller.ts";
import type { InformerSet } from "../../kube/informer_set.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import type { EventLoopMonitor } from "./event_loop_monitor.ts";
import { type ServiceManager, SERVING } from "./service_manager.ts";

interface ControllerOpenerDependencies {
  readonly clock: Clock;
  /** Called for each object that is added, changed or deleted. */
  readonly eventLoop: Pick<EventLoopMonitor, "expectWork">;
  /** Enters the phase {@linkcode SERVING} once all controllers are open. */
  readonly manager: Pick<ServiceManager, "enter">;
}

type OpenableController = Pick<Controller, "kinds" | "open">;

/** The subscriptions, and the controllers that made them. */
interface ControllerOpenerOptions {
  readonly informers: InformerSet;
  readonly controllers: readonly OpenableController[];
}

/**
 * Opens each controller once it has started and the objects of its kinds are known, because rules for
 * a part of a cluster would be wrong. A controller does not wait for the kinds of another one.
 */
export class ControllerOpener {
  readonly #dependencies: ControllerOpenerDependencies;
  readonly #informers: InformerSet;
  readonly #closed: Set<OpenableController>;
  /** Controllers that wait for a limited time, and since when. */
  readonly #waits = new Map<
    OpenableController,
    { readonly since: number; readonly timer: Timer }
  >();
  #isAllowed = false;

  /** Throws a TypeError if no controller needs a subscribed kind, which is a bug. */
  constructor(
    dependencies: ControllerOpenerDependencies,
    { informers, controllers }: ControllerOpenerOptions,
  ) {
    this.#dependencies = dependencies;
    this.#informers = informers;
    this.#closed = new Set(controllers);
    const kinds = controllers.flatMap(({ kinds }) => kinds);
    for (const each of new Set([informers, ...kinds.map((kind) => this.#followed(kind))])) {
      const needed = new Set(
        kinds.filter((kind) => this.#followed(kind) === each).map(({ spec }) => spec),
      );
      this.#follow(each, needed);
    }
  }

  #followed({ informers = this.#informers }: Controller["kinds"][number]): FollowedKinds {
    return informers;
  }

  #follow(followed: FollowedKinds, needed: ReadonlySet<KindSpec>): void {
    const expectWork = () => this.#dependencies.eventLoop.expectWork();
    for (const { spec, informer } of followed) {
      if (!needed.has(spec)) throw new TypeError(`No controller needs kind '${spec.kind}'`);
      informer.addHandler({
        onAdd: expectWork,
        onUpdate: expectWork,
        onDelete: expectWork,
        onSynced: () => this.#look(),
      });
    }
  }

  /** Called once all controllers have started. */
  allow(): void {
    this.#isAllowed = true;
    this.#look();
  }

  /** Opens no further controller. */
  stop(): void {
    this.#closed.clear();
    for (const { timer } of this.#waits.values()) timer.cancel();
  }

  #look(): void {
    if (!this.#isAllowed) return;
    for (const controller of this.#closed) {
      const missing = controller.kinds.filter((kind) => !this.#followed(kind).synced([kind.spec]));
      const waitMs = Math.max(0, ...missing.map(({ waitMs = Infinity }) => waitMs));
      if (waitMs === 0) this.#open(controller);
      else if (waitMs < Infinity) this.#wait(controller, waitMs);
    }
  }

  #wait(controller: OpenableController, waitMs: number): void {
    const { clock } = this.#dependencies;
    const before = this.#waits.get(controller);
    before?.timer.cancel();
    const since = before?.since ?? clock.now();
    const leftMs = since + waitMs - clock.now();
    const timer = clock.setTimer(Math.max(0, leftMs), () => this.#open(controller));
    this.#waits.set(controller, { since, timer });
  }

  #open(controller: OpenableController): void {
    this.#closed.delete(controller);
    this.#waits.get(controller)?.timer.cancel();
    controller.open();
    if (this.#closed.size === 0) this.#dependencies.manager.enter(SERVING);
  }
}
