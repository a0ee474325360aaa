import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import type { ServiceKey } from "../../lib/proxy/service_port_name.ts";
import { type CountKey, countKey, type SharedCounts } from "./shared_counts.ts";

/** The limits of {@linkcode EdgeSettings}. */
type LimitSettings = Pick<EdgeSettings, "maxConnections" | "maxPerClient" | "maxPerSecond">;

/** The limit that forbids a connection, for the log. */
interface ReachedLimit {
  readonly limit:
    | "max-connections"
    | "max-connections-per-client"
    | "max-new-connections-per-second";
  readonly bound: number;
}

/** A connection or flow that may be counted. */
export interface Counted {
  /** The client whose connections a limit counts; `undefined` = not counted. */
  counted: string | undefined;
}

/** The client of connections that only the limit of all connections counts. */
const BEFORE = "";

/**
 * The limits of one Service, which all of its ports share, in all threads. Nothing waits: what is above
 * a limit is refused.
 */
export class ConnectionLimits {
  readonly #counts: () => SharedCounts;
  readonly #service: ServiceKey;
  readonly #all: CountKey;
  #settings: LimitSettings | undefined;

  constructor(counts: () => SharedCounts, service: ServiceKey) {
    this.#counts = counts;
    this.#service = service;
    this.#all = countKey(`${service} `);
  }

  /**
   * Adopts other settings, with the counts so far. Open connections from before there were limits
   * count for the limit of all connections only.
   */
  update(settings: LimitSettings, open: Iterable<Counted>): void {
    const { maxConnections, maxPerClient, maxPerSecond } = settings;
    const hadLimits = this.#settings !== undefined;
    const hasLimits = (maxConnections ?? maxPerClient ?? maxPerSecond) !== undefined;
    this.#settings = hasLimits ? settings : undefined;
    if (hadLimits === hasLimits) return;
    for (const each of open) {
      if (!hasLimits) this.leave(each);
      else if (this.#counts().add(this.#all)) each.counted = BEFORE;
    }
  }

  /** Counts a connection of a client; returns the limit that forbids it instead, if there is one. */
  admit(connection: Counted, client: string, now: number): ReachedLimit | undefined {
    if (this.#settings === undefined) return undefined;
    this.leave(connection);
    const { maxConnections = Infinity, maxPerClient = Infinity, maxPerSecond } = this.#settings;
    const counts = this.#counts();
    if (!counts.add(this.#all, maxConnections)) {
      return { limit: "max-connections", bound: maxConnections };
    }
    const own = this.#keyOf(client);
    if (!counts.add(own, maxPerClient)) {
      counts.remove(this.#all);
      return { limit: "max-connections-per-client", bound: maxPerClient };
    }
    if (maxPerSecond !== undefined && !counts.spend(this.#all, maxPerSecond, now)) {
      counts.remove(this.#all);
      counts.remove(own);
      return { limit: "max-new-connections-per-second", bound: maxPerSecond };
    }
    connection.counted = client;
    return undefined;
  }

  /** A connection has ended, or is not begun. */
  leave(connection: Counted): void {
    const { counted } = connection;
    if (counted === undefined) return;
    connection.counted = undefined;
    this.#counts().remove(this.#all);
    if (counted !== BEFORE) this.#counts().remove(this.#keyOf(counted));
  }

  #keyOf(client: string): CountKey {
    return countKey(`${this.#service} ${client}`);
  }
}
