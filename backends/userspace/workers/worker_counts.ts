import { servicePortKey, type ServicePortName } from "../../../lib/proxy/service_port_name.ts";
import type { ServiceTraffic } from "../../../lib/proxy/service_traffic.ts";
import type { Forwarding, ForwardingCounters } from "../forwarding.ts";
import type { RelayedTraffic, WorkerReport } from "./worker_protocol.ts";
import type { WorkerForwarder } from "./worker_tables.ts";

/** Adds the reports of workers to the counts of the main thread. */
export class WorkerCounts {
  readonly #forwarding: Pick<Forwarding, "counters" | "openFiles" | "traffic">;
  readonly #forwarders: ReadonlyMap<number, WorkerForwarder>;
  /** Open connections in the counts of Services, by worker. */
  readonly #open = new Map<number, Map<string, { readonly name: ServicePortName; open: number }>>();

  constructor(
    forwarding: Pick<Forwarding, "counters" | "openFiles" | "traffic">,
    forwarders: ReadonlyMap<number, WorkerForwarder>,
  ) {
    this.#forwarding = forwarding;
    this.#forwarders = forwarders;
  }

  /** Adds what has changed in a worker since its last report. */
  add(worker: number, { counters, traffic, connections, refused }: WorkerReport): void {
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
    for (const { name, open } of this.#open.get(worker)?.values() ?? []) {
      const traffic = this.#forwarding.traffic?.get(name) as ServiceTraffic | undefined;
      if (traffic) traffic.open -= open;
    }
    this.#open.delete(worker);
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
