import type { Service } from "../api/kinds/service.ts";
import { deepEqual } from "./deep_equal.ts";
import { type ObjectProblem, problemText } from "../api/problem.ts";
import {
  type ServicePort,
  type ServicePortOptions,
  type ServicePorts,
  servicePortsFromService,
} from "./service_port.ts";
import {
  namespacedNameOf,
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "./service_port_name.ts";

/** The changes between two drains. */
export interface ServiceChanges {
  /** Services with a ServicePort that was added, changed or removed. */
  readonly services: ReadonlySet<ServiceKey>;
  /** Every ServicePort that these Services have now. */
  readonly upserted: ReadonlyMap<ServicePortKey, ServicePort>;
  /** Every ServicePort that they had at the last drain and no longer have. */
  readonly removed: ReadonlySet<ServicePortKey>;
  readonly problems: readonly ObjectProblem[];
}

/** One Service: its state at the last drain, and its current state. */
interface ServiceChange {
  readonly previous: readonly ServicePort[];
  readonly current: readonly ServicePort[];
}

const NOTHING: ServicePorts = { ports: [], problems: [] };

/** Tracks the Services of one IP family. */
export class ServiceChangeTracker {
  readonly #options: ServicePortOptions;
  readonly #changes = new Map<ServiceKey, ServiceChange>();
  /** Current problems of Services, where some are not yet reported. */
  readonly #problems = new Map<ServiceKey, readonly ObjectProblem[]>();
  #total = 0;

  constructor(options: ServicePortOptions) {
    this.#options = options;
  }

  /** Number of Services that changed since the last drain. */
  get pending(): number {
    return this.#changes.size;
  }

  /** Number of updates since the start, including those without effect. */
  get total(): number {
    return this.#total;
  }

  /**
   * Applies the change of one Service; either side may be absent. A Service that returns to its
   * state at the last drain is not changed. Returns whether a sync has work to do, for this Service
   * or another.
   */
  update(previous: Service | undefined, current: Service | undefined): boolean {
    const service = current ?? previous;
    if (service === undefined) return false;
    this.#total++;
    const key = serviceKey(namespacedNameOf(service));
    const before = this.#read(previous);
    const after = this.#read(current);
    const change = {
      previous: this.#changes.get(key)?.previous ?? before.ports,
      current: after.ports,
    };
    if (deepEqual(change.previous, change.current)) this.#changes.delete(key);
    else this.#changes.set(key, change);
    this.#note(key, before.problems, after.problems);
    return this.#changes.size > 0 || this.#problems.size > 0;
  }

  /** Returns and forgets the changes of at most this many Services. */
  drain(limit = Infinity): ServiceChanges {
    const services = new Set<ServiceKey>();
    const upserted = new Map<ServicePortKey, ServicePort>();
    const removed = new Set<ServicePortKey>();
    for (const [service, { previous, current }] of take(this.#changes, limit)) {
      services.add(service);
      for (const { key } of previous) removed.add(key);
      for (const port of current) {
        removed.delete(port.key);
        upserted.set(port.key, port);
      }
    }
    const problems = [...this.#problems.values()].flat();
    this.#problems.clear();
    return { services, upserted, removed, problems };
  }

  #read(service: Service | undefined): ServicePorts {
    return service === undefined ? NOTHING : servicePortsFromService(service, this.#options);
  }

  /** A problem is reported once, not with every update of its object. */
  #note(key: ServiceKey, before: readonly ObjectProblem[], after: readonly ObjectProblem[]): void {
    if (after.length === 0) {
      this.#problems.delete(key);
      return;
    }
    const pending = new Set(this.#problems.get(key)?.map(problemText));
    const reported = new Set(before.map(problemText).filter((problem) => !pending.has(problem)));
    const news = after.filter((problem) => !reported.has(problemText(problem)));
    if (news.length === 0) this.#problems.delete(key);
    else this.#problems.set(key, news);
  }
}

/**
 * Removes the oldest entries of a map.
 *
 * @module
 */

/** Yields the oldest entries of a map, at most `limit`, and deletes each before it is yielded. */
export function* take<K, V>(map: Map<K, V>, limit: number): Generator<[K, V], void, void> {
  let taken = 0;
  for (const entry of map) {
    if (taken++ >= limit) return;
    map.delete(entry[0]);
    yield entry;
  }
}
