import { servicePortKey, type ServicePortName } from "../../../lib/proxy/service_port_name.ts";
import type { Forwarding, ForwardingCounters } from "../forwarding.ts";
import type { WorkerLinks } from "./worker_links.ts";
import type { RelayedTraffic, WorkerReport } from "./worker_protocol.ts";
import type { WorkerForwarder } from "./worker_tables.ts";

type CountedForwarding = Pick<Forwarding, "clock" | "counters" | "openFiles" | "traffic">;

/** Those of one worker to a ServicePort. */
interface OpenConnections {
  readonly name: ServicePortName;
  open: number;
}

/** Interval of reports, so that an ending worker takes few counts with it and a hung one is noticed. */
const REPORT_MS = 1000;
/** Longest time for which a tool waits for reports. */
const REFRESH_MS = 2000;

/** Adds the reports of workers to the counts of the main thread. */
export class WorkerCounts {
  readonly #forwarding: CountedForwarding;
  readonly #links: WorkerLinks;
  readonly #forwarders: ReadonlyMap<number, WorkerForwarder>;
  /** Open connections in the counts of Services, by worker. */
  readonly #open = new Map<number, Map<string, OpenConnections>>();

  constructor(forwarding: CountedForwarding, { forwarders, links }: {
    readonly forwarders: ReadonlyMap<number, WorkerForwarder>;
    readonly links: WorkerLinks;
  }) {
    this.#forwarding = forwarding;
    this.#forwarders = forwarders;
    this.#links = links;
  }

  /** Asks all workers for reports. Never rejects. */
  async refresh(): Promise<void> {
    const done = new AbortController();
    const reported = this.#links.indexes.map(async (index) => {
      const report = await this.#links.get(index)?.ask({ kind: "report" });
      if (report) this.#add(index, report);
    });
    const late = this.#forwarding.clock.sleep(REFRESH_MS, done.signal).catch(() => {});
    await Promise.race([Promise.allSettled(reported), late]);
    done.abort();
  }

  /** Asks again and again. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.refresh();
      await this.#forwarding.clock.sleep(REPORT_MS, signal).catch(() => {});
    }
  }

  /** Adds what has changed in a worker since its last report. */
  #add(worker: number, { counters, traffic, connections, refused }: WorkerReport): void {
    const total = this.#forwarding.counters;
    for (const [name, change] of Object.entries(counters)) {
      total[name as keyof ForwardingCounters] += change;
    }
    for (const [number, count] of connections) {
      this.#forwarders.get(number)?.counts.set(worker, count);
    }
    for (const [use, count] of refused) this.#forwarding.openFiles.countRefused(use, count);
    for (const [number, name, changes] of traffic) {
      // A report that arrives after the removal would make a row that nothing removes.
      if (this.#forwarders.has(number)) this.#addTraffic(worker, name, changes);
    }
  }

  /** The connections of a worker have ended with it. */
  forget(worker: number): void {
    for (const row of this.#open.get(worker)?.values() ?? []) this.#subtract(row);
    this.#open.delete(worker);
  }

  /** A ServicePort was removed: no worker reports on its connections any more. */
  leave(name: ServicePortName): void {
    const key = servicePortKey(name);
    for (const rows of this.#open.values()) {
      const row = rows.get(key);
      if (row) this.#subtract(row);
      rows.delete(key);
    }
  }

  #subtract({ name, open }: OpenConnections): void {
    const traffic = this.#forwarding.traffic?.enter(name);
    if (traffic) traffic.open -= open;
  }

  #addTraffic(worker: number, name: ServicePortName, changes: Readonly<RelayedTraffic>): void {
    const key = servicePortKey(name);
    const traffic = this.#forwarding.traffic?.enter(name);
    if (!traffic) return;
    for (const [figure, change] of Object.entries(changes)) {
      traffic[figure as keyof RelayedTraffic] += change;
    }
    const open = this.#open.getOrInsertComputed(worker, () => new Map())
      .getOrInsertComputed(key, () => ({ name, open: 0 }));
    open.open += changes.open;
  }
}
