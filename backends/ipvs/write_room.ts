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
   * All frontends of one that is served are written. Removals come first at servers that have more
   * endpoints without them, since they may be dead. Elsewhere additions precede removals.
   */
  fit(item: ServiceItem, applied: ServiceItem | undefined): ServiceItem | undefined {
    const { key, name } = item.plan;
    const service = serviceKey(name);
    const wait = (part: ServiceItem | undefined) => {
      this.waiting.add(key);
      return part;
    };
    if (applied === undefined && this.#roomOf(service) === 0) return wait(undefined);
    const there = applied && realsOf(applied);
    const wanted = realsOf(item);
    // Later writes of a plan find its frontends.
    if (applied?.plan !== item.plan) this.#take(service, wanted.size);
    const parts = [...wanted].map(([server, keys]) => {
      const before = there?.get(server) ?? new Set();
      const missing = [...keys.difference(before)];
      const unused = [...before.difference(keys)];
      return { server, before, missing, unused, added: 0, removed: 0 };
    });
    const upTo = (count: number, atLeast = 0) => {
      const granted = Math.min(count, Math.max(this.#roomOf(service), atLeast));
      this.#take(service, granted);
      return granted;
    };
    for (const part of parts) {
      const { before, missing, unused } = part;
      const kept = before.size - unused.length;
      // A new server has an endpoint from the beginning.
      if (kept === 0) part.added = upTo(Math.min(1, missing.length), before.size === 0 ? 1 : 0);
      if (kept + part.added >= unused.length) part.removed = upTo(unused.length);
    }
    for (const part of parts) {
      const { missing, unused } = part;
      part.added += upTo(missing.length - part.added);
      if (part.added === missing.length) part.removed += upTo(unused.length - part.removed);
    }
    const hasAll = parts.every(({ missing, unused, added, removed }) =>
      added === missing.length && removed === unused.length
    );
    if (hasAll) return item;
    const reals = parts.map(({ server, before, missing, unused, added, removed }) => {
      const more = new Set(missing.slice(0, added));
      const fewer = new Set(unused.slice(0, removed));
      // What stays the same set is not compared.
      const after = more.size + fewer.size === 0 ? before : before.union(more).difference(fewer);
      return [server, after] as const;
    });
    return wait({ ...item, reals: new Map(reals) });
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
