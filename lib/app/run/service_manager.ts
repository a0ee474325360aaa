/**
 * The phase of a run, and the notifications of systemd: ready, stopping, the phase, and that the
 * process is alive.
 *
 * @module
 */
import type { Controller, LoopActivity } from "../../engine/controller.ts";
import type { ControllerName, LoopId } from "../../engine/loop_id.ts";
import type { SyncEvent, SyncListener } from "../../engine/sync_event.ts";
import type { TaskGroup } from "../../engine/task_group.ts";
import type { Logger } from "../../log/logger.ts";
import type { IpFamily } from "../../net/ip_address.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import { ServiceNotifier } from "../../os/sd_notify.ts";
import type { ProcessInfo } from "../dependencies.ts";
import { WakeUp } from "../../os/wake_up.ts";

/** A sync that takes longer counts as stuck: 10,000 Services need seconds. */
const SYNC_DEADLINE_MS = 120_000;

/** The phase in which everything is known and synced. */
export const SERVING = "serving";

/** The time that systemd waits for the remaining loops once each controller has synced one loop. */
const PATIENCE_MS = 60_000;

interface ServiceManagerDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly process: Pick<ProcessInfo, "env" | "pid">;
}

/** Notifies the service manager, if there is one. */
export class ServiceManager implements Disposable, SyncListener {
  readonly #dependencies: ServiceManagerDependencies;
  readonly #notifier: ServiceNotifier;
  /** Whether each loop has synced all objects; `undefined` = not synced yet. */
  readonly #loops = new Map<ControllerName, Map<IpFamily, boolean | undefined>>();
  #phase = "waiting for objects";
  #isReady = false;
  #readiness: Timer | undefined;

  /** `folder` contains the own end of the socket. */
  constructor(dependencies: ServiceManagerDependencies, { folder }: { readonly folder: string }) {
    const { process, logger } = dependencies;
    this.#dependencies = dependencies;
    const onError = (error: unknown) => logger.warn("Cannot notify systemd", { error });
    this.#notifier = new ServiceNotifier(process, folder, onError);
  }

  /** The phase of the run. */
  get phase(): string {
    return this.#phase;
  }

  enter(phase: string): void {
    this.#phase = phase;
    this.#dependencies.logger.info("Entered phase", { phase });
    // Nothing waits for systemd; a failure is logged there.
    void this.notifyPhase();
  }

  /** A line for `systemctl status`. */
  notifyPhase(): Promise<void> {
    return this.#notifier.send(`STATUS=${this.#phase}`);
  }

  /** Reports ready once all loops that have started work: units after this one may use Services. */
  on(event: SyncEvent): void {
    if (event.kind === "started") this.#note(event.loop, undefined);
    if (event.kind !== "synced") return;
    const own = this.#note(event.loop, event.isComplete);
    if (this.#isReady) return;
    const loops = [...this.#loops.values()].flatMap((families) => [...families.values()]);
    if (loops.every((isComplete) => isComplete)) this.#ready();
    // An endless manifest, or a kind that may not be read, must not end what works without it.
    else if (![...own.values()].includes(undefined)) {
      this.#readiness ??= this.#dependencies.clock.setTimer(PATIENCE_MS, () => this.#ready());
    }
  }

  #note({ controller, family }: LoopId, isComplete: boolean | undefined) {
    const families = this.#loops.get(controller) ?? new Map<IpFamily, boolean | undefined>();
    this.#loops.set(controller, families.set(family, isComplete));
    return families;
  }

  #ready(): void {
    this.#isReady = true;
    void this.#notifier.send("READY=1");
  }

  stopping(): Promise<void> {
    return this.#notifier.send("STOPPING=1");
  }

  /** Feeds the watchdog, if there is one, as long as no sync is overdue. */
  startWatchdog(tasks: TaskGroup, controllers: readonly Pick<Controller, "activity">[]): void {
    const { watchdogMs } = this.#notifier;
    if (watchdogMs === undefined) return;
    tasks.run("watchdog", (signal) => this.#feed(watchdogMs, controllers, signal));
  }

  [Symbol.dispose](): void {
    this.#readiness?.cancel();
    this.#notifier[Symbol.dispose]();
  }

  async #feed(
    periodMs: number,
    controllers: readonly Pick<Controller, "activity">[],
    signal: AbortSignal,
  ): Promise<void> {
    const { clock, logger } = this.#dependencies;
    while (!signal.aborted) {
      const alive = mayFeedWatchdog(controllers.flatMap(({ activity }) => activity), clock.now());
      if (alive) await this.#notifier.send("WATCHDOG=1");
      else logger.error("A sync is overdue; systemd's watchdog is no longer notified");
      await clock.sleep(periodMs, signal).catch(() => {});
    }
  }
}

/**
 * Feeds while the event loop turns (this function is called at all) and nothing is overdue: a quiet
 * hour is healthy, a run that never ends is not, and neither is a request that never gets its run.
 * Failing syncs do not stop the feeding, because a restart would not repair them.
 */
export function mayFeedWatchdog(
  activities: readonly LoopActivity[],
  now: number,
): boolean {
  return activities.every(({ runningSince, pendingSince }) => {
    const since = runningSince ?? pendingSince;
    return since === undefined || now - since < SYNC_DEADLINE_MS;
  });
}

/** Time between two checks. A stall is noticed if a check falls into it, so long ones always are. */
const PERIOD_MS = 20;
/** The time for which it keeps checking after the last sign of work. */
const WATCH_MS = 5000;

/**
 * Checks while there is work, and sleeps otherwise: 50 checks a second would be most of the CPU time of
 * an idle node.
 */
export class EventLoopMonitor {
  readonly #clock: Clock;
  #watchUntil = 0;
  #largestMs = 0;
  readonly #work = new WakeUp();

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /** The longest time since the start for which the event loop was blocked, in milliseconds. */
  get largestMs(): number {
    return this.#largestMs;
  }

  /** Announces work that may keep the event loop busy, now or in the next seconds. */
  expectWork(): void {
    this.#watchUntil = this.#clock.now() + WATCH_MS;
    this.#work.call();
  }

  /** Measures until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#work.wait(signal);
      await this.#watch(signal);
    }
  }

  async #watch(signal: AbortSignal): Promise<void> {
    const clock = this.#clock;
    let before = clock.now();
    while (!signal.aborted && before < this.#watchUntil) {
      await clock.sleep(PERIOD_MS, signal).catch(() => {});
      const now = clock.now();
      if (!signal.aborted) this.#largestMs = Math.max(this.#largestMs, now - before - PERIOD_MS);
      before = now;
    }
  }
}
