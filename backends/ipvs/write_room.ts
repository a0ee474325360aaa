import type { ObjectChange } from "../../lib/engine/reconciler.ts";
import {
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../../lib/proxy/service_port_name.ts";
import { realName, type ServiceItem, WEIGHT_1 } from "./objects.ts";
import { renderService } from "./render_service.ts";

/** Changes of frontends and real servers of one Service in a write. */
const MOST_OF_SERVICE = 512;
/** Beyond that, those of all Services together. */
const MOST_TOGETHER = 4_096;

/**
 * What large Services may change in one write, so that no other change waits for them. The next write
 * continues, and begins with the other changes.
 */
export class WriteRoom {
  /** ServicePorts that are not complete. */
  readonly waiting = new Set<ServicePortKey>();
  readonly #taken = new Map<ServiceKey, number>();
  #together = MOST_TOGETHER;

  /**
   * Returns as much of a ServicePort as there is room for; `applied`, if it is new and there is none.
   * All frontends of one that is served are written. Additions precede removals, so no server lacks
   * an endpoint that it had and will have.
   */
  fit(item: ServiceItem, applied: ServiceItem | undefined): ServiceItem | undefined {
    const { key, name } = item.plan;
    const service = serviceKey(name);
    const wait = (part: ServiceItem | undefined) => {
      this.waiting.add(key);
      return part;
    };
    if (applied === undefined && this.#roomOf(service) === 0) return wait(undefined);
    const wanted = realsOf(item);
    const there = applied && realsOf(applied);
    const reals = new Map<string, ReadonlySet<string>>();
    this.#take(service, wanted.size);
    let [hasAll, hasMore] = [true, false];
    for (const [server, keys] of wanted) {
      const before = there?.get(server) ?? new Set();
      const added = [...keys.difference(before)];
      // A new server has an endpoint from the beginning.
      const count = Math.max(this.#roomOf(service), before.size === 0 ? 1 : 0);
      const part = added.slice(0, count);
      this.#take(service, part.length);
      hasAll &&= part.length === added.length;
      reals.set(server, part.length === 0 ? before : before.union(new Set(part)));
    }
    for (const [server, before] of hasAll ? reals : []) {
      const unused = [...before.difference(wanted.get(server)!)];
      const part = unused.slice(0, this.#roomOf(service));
      this.#take(service, part.length);
      hasMore ||= part.length < unused.length;
      if (part.length > 0) reals.set(server, before.difference(new Set(part)));
    }
    return hasAll && !hasMore ? item : wait({ ...item, reals });
  }

  #roomOf(service: ServiceKey): number {
    const taken = this.#taken.get(service) ?? 0;
    return Math.max(0, MOST_OF_SERVICE - taken) + Math.max(0, this.#together);
  }

  #take(service: ServiceKey, count: number): void {
    const taken = this.#taken.get(service) ?? 0;
    this.#taken.set(service, taken + count);
    this.#together -= Math.max(0, taken + count - Math.max(taken, MOST_OF_SERVICE));
  }
}

/** The changes between two parts of a ServicePort by the same plan. */
export function* realChanges(applied: ServiceItem, item: ServiceItem): Generator<ObjectChange> {
  const there = realsOf(applied);
  for (const [server, keys] of realsOf(item)) {
    const before = there.get(server);
    if (before === undefined || before === keys) continue;
    for (const key of keys.difference(before)) {
      yield { kind: "real", name: realName(server, key), before: undefined, after: WEIGHT_1 };
    }
    for (const key of before.difference(keys)) {
      yield { kind: "real", name: realName(server, key), before: WEIGHT_1, after: undefined };
    }
  }
}

/** The real servers by virtual server. */
function realsOf({ plan, inputs, reals }: ServiceItem): ReadonlyMap<string, ReadonlySet<string>> {
  if (reals) return reals;
  // Most frontends have the same endpoints.
  const sets = new Map<unknown, ReadonlySet<string>>();
  return new Map(
    renderService(plan, inputs).frontends.map(({ endpoints, server }) => [
      server,
      sets.getOrInsertComputed(endpoints, () => new Set(endpoints.map(({ key }) => key))),
    ]),
  );
}
