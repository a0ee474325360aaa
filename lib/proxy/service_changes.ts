/**
 * Collects changes of Services until the next sync.
 *
 * @module
 */
import type { Service } from "../api/objects.ts";
import { deepEqual } from "./deep_equal.ts";
import { type ObjectProblem, problemText } from "./problem.ts";
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
import { take } from "./take.ts";

/** What changed between two drains. */
export interface ServiceChanges {
  /** Services of which some ServicePort is new, changed or gone. */
  readonly services: ReadonlySet<ServiceKey>;
  /** Every ServicePort that these Services have now. */
  readonly upserted: ReadonlyMap<ServicePortKey, ServicePort>;
  /** Every ServicePort that they had at the last drain and have no longer. */
  readonly removed: ReadonlySet<ServicePortKey>;
  readonly problems: readonly ObjectProblem[];
}

/** One Service: what the last drain left of it, and what it is now. */
interface ServiceChange {
  readonly previous: readonly ServicePort[];
  readonly current: readonly ServicePort[];
}

const NOTHING: ServicePorts = { ports: [], problems: [] };

/** Services of one IP family. */
export class ServiceChangeTracker {
  readonly #options: ServicePortOptions;
  readonly #changes = new Map<ServiceKey, ServiceChange>();
  /** Of the Service as it is now, where something about it is new. */
  readonly #problems = new Map<ServiceKey, readonly ObjectProblem[]>();
  #total = 0;

  constructor(options: ServicePortOptions) {
    this.#options = options;
  }

  /** Services that differ from what they were at the last drain. */
  get pending(): number {
    return this.#changes.size;
  }

  /** Calls since the start, whether they changed anything or not. */
  get total(): number {
    return this.#total;
  }

  /**
   * Takes the change of one Service; either side may be absent. What goes back to where the last
   * drain left it is no change. Returns whether a sync has something to do, for this Service or
   * for another.
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

  /** Hands over what changed in so many Services, and forgets that it did. */
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

  /** A problem is told of once, not with every update of the object that has it. */
  #note(key: ServiceKey, before: readonly ObjectProblem[], after: readonly ObjectProblem[]): void {
    const pending = new Set(this.#problems.get(key)?.map(problemText));
    const told = new Set(before.map(problemText).filter((problem) => !pending.has(problem)));
    const news = after.filter((problem) => !told.has(problemText(problem)));
    if (news.length === 0) this.#problems.delete(key);
    else this.#problems.set(key, news);
  }
}
