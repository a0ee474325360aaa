/**
 * Deletes stale flows from the kernel after syncs, one run at a time and outside of the sync.
 * Requests during a run wait for the next one, and failed ones are repeated.
 *
 * @module
 */
import type { Logger } from "../../log/logger.ts";
import { messageOf } from "../../log/message_of.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import { formatHostPort } from "../../net/port.ts";
import type { Clock } from "../../os/clock.ts";
import type { Conntrack } from "../../os/conntrack.ts";
import type { PlanChanges, ProxyPlan } from "../../proxy/proxy_plan.ts";
import type { ServicePortKey } from "../../proxy/service_port_name.ts";
import {
  type SuspectFrontends,
  type TrackedFlow,
  TrackedFrontends,
} from "../../proxy/stale_flows.ts";
import type { ProxyMetrics } from "../../metrics/proxy_metrics.ts";
import type { ChangeListener, ServiceSyncEvent, ServiceSyncListener } from "../change_listener.ts";
import { WakeUp, workOnCall } from "../../os/wake_up.ts";

interface ConntrackCleanerDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly conntrack: Pick<Conntrack, "listFlows" | "deleteFlows">;
  /** Receives the result of each successful run. */
  readonly metrics: Pick<ProxyMetrics, "conntrackReconciled">;
  /** Receives each run, including failed ones. */
  readonly changes?: Pick<ChangeListener, "flowsCleaned">;
}

/** The state of one family and protocol. */
interface Work {
  readonly family: IpFamily;
  readonly frontends: TrackedFrontends;
  lastFullAt: number;
  /** Set while flows are being deleted. */
  deletion?: {
    readonly flows: readonly TrackedFlow[];
    readonly controller: AbortController;
    /** Resolves when all deletions have ended. Never rejects. */
    readonly ended: Promise<unknown>;
  } | undefined;
}

/**
 * Interval of searches for all stale flows. A packet that passed the old rules during their
 * replacement can create a flow that no other search finds. Syncs run at least hourly, so this needs
 * no timer.
 */
const FULL_EVERY_MS = 3_600_000;
const PROTOCOLS = ["UDP", "TCP"] as const;
const MOST_COMPLAINTS = 5;

/** Deletes stale flows of backends whose packets the kernel tracks. */
export class ConntrackCleaner implements ServiceSyncListener {
  readonly #dependencies: ConntrackCleanerDependencies;
  readonly #works: readonly Work[];
  readonly #wakeUp = new WakeUp();
  /** Messages that were logged since the last successful run. */
  readonly #complaints = new Set<string>();

  constructor(dependencies: ConntrackCleanerDependencies) {
    const logger = dependencies.logger.with({ component: "conntrack_cleaner" });
    this.#dependencies = { ...dependencies, logger };
    this.#works = IP_FAMILIES.flatMap((family) =>
      PROTOCOLS.map((protocol) => ({
        family,
        frontends: new TrackedFrontends(protocol),
        lastFullAt: 0,
      }))
    );
  }

  on(event: ServiceSyncEvent): Promise<void> | void {
    const works = this.#works.filter(({ family }) => family === event.loop.family);
    if (event.kind === "syncing") return this.#syncing(works, event.plan, event.changes);
    if (event.kind === "synced") this.#synced(works, event.plan, event.changes);
  }

  /**
   * Ends a deletion of flows to endpoints that the sync is about to restore: entries are deleted by
   * endpoint, not by age, which would include new flows.
   */
  async #syncing(works: readonly Work[], plan: ProxyPlan, changes: PlanChanges): Promise<void> {
    for (const { frontends, deletion } of works) {
      frontends.expect(plan, changes);
      if (!deletion || deletion.flows.every((flow) => frontends.isStale(flow))) continue;
      deletion.controller.abort();
      await deletion.ended;
    }
  }

  #synced(works: readonly Work[], plan: ProxyPlan, changes: PlanChanges): void {
    const now = this.#dependencies.clock.now();
    for (const work of works) {
      work.frontends.note(plan, changes);
      if (changes.everything || now - work.lastFullAt >= FULL_EVERY_MS) {
        work.frontends.suspectAll();
        work.lastFullAt = now;
      }
      if (work.frontends.pending) this.#wakeUp.call();
    }
  }

  /** Cleans whenever there is something to clean, until the signal is aborted. Never rejects. */
  run(signal: AbortSignal): Promise<void> {
    const { clock } = this.#dependencies;
    return workOnCall(clock, this.#wakeUp, signal, () => this.#cleanAll(signal));
  }

  /** Returns whether all families succeeded. */
  async #cleanAll(signal: AbortSignal): Promise<boolean> {
    let clean = true;
    for (const work of this.#works) {
      const { family, frontends } = work;
      if (signal.aborted || !frontends.pending) continue;
      const suspects = frontends.take();
      const startedAt = this.#dependencies.clock.now();
      try {
        await this.#clean(work, suspects, startedAt, signal);
      } catch (error) {
        frontends.giveBack(suspects);
        clean = false;
        if (signal.aborted) continue;
        this.#complain(family, error);
        this.#dependencies.changes?.flowsCleaned(family, {
          removed: new Map(),
          tookMs: this.#dependencies.clock.now() - startedAt,
          error: messageOf(error),
        });
      } finally {
        frontends.endSearch();
      }
    }
    if (clean && this.#complaints.size > 0) {
      this.#complaints.clear();
      this.#dependencies.logger.info("Stale flows can be deleted again");
    }
    return clean;
  }

  async #clean(
    work: Work,
    suspects: SuspectFrontends,
    startedAt: number,
    signal: AbortSignal,
  ): Promise<void> {
    const { changes, clock, logger, conntrack, metrics } = this.#dependencies;
    const { family, frontends } = work;
    await frontends.search(suspects, () => clock.yieldToEventLoop());
    /** Flows with the same description, and their number. */
    const found = new Map<string, { readonly flow: TrackedFlow; count: number }>();
    const entries = await conntrack.listFlows(family, {
      protocol: frontends.protocol,
      ports: frontends.ports,
      signal,
      onFlow: (flow) => {
        if (!frontends.isStale(flow)) return;
        const alike = found.get(describe(flow));
        if (alike) alike.count++;
        else found.set(describe(flow), { flow, count: 1 });
      },
    });
    // Reading a large table takes seconds, in which an endpoint may have been added again.
    const stale = [...found.values()].filter(({ flow }) => frontends.isStale(flow));
    const flows = stale.map(({ flow }) => flow);
    const known = await this.#delete(work, flows, signal);
    const deleted = known ?? 0;
    const removed = new Map<ServicePortKey, number>();
    for (const { flow, count } of known === undefined ? [] : stale) {
      const owner = frontends.ownerOf(flow);
      if (owner !== undefined) removed.set(owner, (removed.get(owner) ?? 0) + count);
    }
    // New TCP frontends hardly ever have such attempts.
    if (frontends.protocol === "UDP" || removed.size > 0) {
      changes?.flowsCleaned(family, { removed, tookMs: clock.now() - startedAt });
    }
    const seconds = (clock.now() - startedAt) / 1000;
    metrics.conntrackReconciled(family, { seconds, deleted });
    const ms = Math.round(seconds * 1000);
    const { protocol } = frontends;
    const fields = { ipFamily: family, protocol, entries, deleted, ms };
    logger.verbose(2, "Looked for stale flows", fields);
    if (known !== undefined && !frontends.isGuess) return;
    // Only a successful sync confirms the expected changes, and an aborted deletion left flows.
    frontends.giveBack(suspects);
    if (!frontends.expecting) this.#wakeUp.call();
  }

  /** Resolves to the number of deleted entries; `undefined` if a sync aborted the deletion. */
  async #delete(
    work: Work,
    flows: readonly TrackedFlow[],
    signal: AbortSignal,
  ): Promise<number | undefined> {
    const controller = new AbortController();
    const deleting = this.#dependencies.conntrack.deleteFlows(work.family, flows, {
      protocol: work.frontends.protocol,
      signal: AbortSignal.any([signal, controller.signal]),
    });
    work.deletion = { flows, controller, ended: deleting.catch(() => {}) };
    try {
      return await deleting;
    } catch (error) {
      if (!controller.signal.aborted) throw error;
      return undefined;
    } finally {
      work.deletion = undefined;
    }
  }

  /** Logs a problem once until it is solved. */
  #complain(family: IpFamily, error: unknown): void {
    const { logger } = this.#dependencies;
    const text = messageOf(error);
    if (this.#complaints.has(text) || this.#complaints.size >= MOST_COMPLAINTS) {
      logger.verbose(2, "Still cannot delete stale flows", { ipFamily: family, error });
      return;
    }
    this.#complaints.add(text);
    logger.warn(
      "Cannot delete stale flows; clients that keep sending may still use a removed endpoint",
      { ipFamily: family, error },
    );
  }
}

/** Describes a flow by its two ends. Flows with the same description are deleted together. */
function describe(
  { destination, destinationPort, replySource, replySourcePort }: TrackedFlow,
): string {
  return `${formatHostPort(destination, destinationPort)} ${
    formatHostPort(replySource, replySourcePort)
  }`;
}
