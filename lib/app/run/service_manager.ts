/**
 * What systemd is told: ready, stopping, a line of status, and that the process is alive.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import type { Clock, Timer } from "../../os/clock.ts";
import { createServiceNotifier, type ServiceNotifier } from "../../os/sd_notify.ts";
import type { RunnerActivity } from "../../controller/sync_runner.ts";
import type { ProcessInfo } from "../dependencies.ts";
import type { TaskGroup } from "../../controller/task_group.ts";

/** A sync in flight for so long is taken for dead: 10,000 Services need seconds. */
const SYNC_DEADLINE_MS = 120_000;

/** What the service manager is told with. */
interface ServiceManagerDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly process: Pick<ProcessInfo, "env" | "pid">;
}

/** The service manager, where there is one; else nothing happens. */
export class ServiceManager implements Disposable {
  readonly #dependencies: ServiceManagerDependencies;
  readonly #notifier: ServiceNotifier;
  #readiness: Timer | undefined;

  /** `folder` is where the own end of the socket lies. */
  constructor(dependencies: ServiceManagerDependencies, { folder }: { readonly folder: string }) {
    const { process, logger } = dependencies;
    this.#dependencies = dependencies;
    this.#notifier = createServiceNotifier({
      environment: environmentOf(process.env),
      pid: process.pid,
      folder,
      onError: (error) => logger.warn("Cannot notify systemd", { error }),
    });
  }

  /** A line for `systemctl status`. */
  status(text: string): Promise<void> {
    return this.#notifier.status(text);
  }

  /** A unit that is ordered after this one may start. */
  ready(): Promise<void> {
    return this.#notifier.ready();
  }

  /** As {@linkcode ready}, after `ms` at the latest. */
  readyIn(ms: number): void {
    this.#readiness ??= this.#dependencies.clock.setTimer(ms, () => void this.ready());
  }

  stopping(): Promise<void> {
    return this.#notifier.stopping();
  }

  /** Feeds the watchdog, if there is one, as long as no sync is overdue. */
  startWatchdog(tasks: TaskGroup, activities: () => readonly RunnerActivity[]): void {
    const { watchdogMs } = this.#notifier;
    if (watchdogMs === undefined) return;
    tasks.run("watchdog", (signal) => this.#feed(watchdogMs, { activities, signal }));
  }

  [Symbol.dispose](): void {
    this.#readiness?.cancel();
    this.#notifier[Symbol.dispose]();
  }

  async #feed(
    periodMs: number,
    { activities, signal }: {
      readonly activities: () => readonly RunnerActivity[];
      readonly signal: AbortSignal;
    },
  ): Promise<void> {
    const { clock, logger } = this.#dependencies;
    while (!signal.aborted) {
      const alive = mayFeedWatchdog(activities(), {
        now: clock.now(),
        runDeadlineMs: SYNC_DEADLINE_MS,
        pendingDeadlineMs: SYNC_DEADLINE_MS,
      });
      if (alive) await this.#notifier.feedWatchdog();
      else logger.error("A sync is overdue; systemd's watchdog is no longer notified");
      await clock.sleep(periodMs, signal).catch(() => {});
    }
  }
}

function environmentOf(
  env: (name: string) => string | undefined,
): Parameters<typeof createServiceNotifier>[0]["environment"] {
  const [notifySocket, watchdogUsec, watchdogPid] = [
    env("NOTIFY_SOCKET"),
    env("WATCHDOG_USEC"),
    env("WATCHDOG_PID"),
  ];
  return {
    ...(notifySocket !== undefined && { notifySocket }),
    ...(watchdogUsec !== undefined && { watchdogUsec }),
    ...(watchdogPid !== undefined && { watchdogPid }),
  };
}

/** How long a sync may take. */
interface WatchdogOptions {
  /** Longest time for a run in flight. */
  readonly runDeadlineMs: number;
  /** Longest time for which a request may wait while no run is in flight. */
  readonly pendingDeadlineMs: number;
}

/**
 * Feeds while the event loop turns (this function is called at all) and nothing is overdue: a quiet
 * hour is healthy, a run that never ends is not, and neither is a request that never gets its run.
 * Failing syncs are no reason to be killed: a restart would not mend them.
 */
export function mayFeedWatchdog(
  activities: readonly RunnerActivity[],
  { now, runDeadlineMs, pendingDeadlineMs }: WatchdogOptions & { readonly now: number },
): boolean {
  return activities.every(({ runningSince, pendingSince }) => {
    if (runningSince !== undefined) return now - runningSince < runDeadlineMs;
    return pendingSince === undefined || now - pendingSince < pendingDeadlineMs;
  });
}
