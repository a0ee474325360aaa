import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";

/** The limits of {@linkcode EdgeSettings}. */
type LimitSettings = Pick<EdgeSettings, "maxConnections" | "maxPerClient" | "maxPerSecond">;

/** The limit that forbids a connection, for the log. */
export interface ReachedLimit {
  readonly limit:
    | "max-connections"
    | "max-connections-per-client"
    | "max-new-connections-per-second";
  readonly bound: number;
}

/** Whether a ServicePort has a limit. */
export function hasLimits({ maxConnections, maxPerClient, maxPerSecond }: LimitSettings): boolean {
  return (maxConnections ?? maxPerClient ?? maxPerSecond) !== undefined;
}

/** The limits of one ServicePort. Nothing waits: what is above a limit is refused. */
export class ConnectionLimits {
  #settings: LimitSettings;
  /** Admitted connections of each client; as many entries as there are clients with connections. */
  readonly #perClient = new Map<string, number>();
  /** Connections that may begin at once; refilled at the rate of the limit. */
  #tokens: number;
  #refilledAt: number;

  private constructor(settings: LimitSettings, now: number) {
    this.#settings = settings;
    this.#tokens = settings.maxPerSecond ?? 0;
    this.#refilledAt = now;
  }

  /** The limits by other settings, with the counts so far; `undefined` if there are none. */
  static updated(
    limits: ConnectionLimits | undefined,
    { settings, now }: { readonly settings: LimitSettings; readonly now: number },
  ): ConnectionLimits | undefined {
    if (!hasLimits(settings)) return undefined;
    if (limits === undefined) return new ConnectionLimits(settings, now);
    if (limits.#settings.maxPerSecond === undefined) limits.#tokens = settings.maxPerSecond ?? 0;
    limits.#settings = settings;
    return limits;
  }

  /** Counts a connection of a client; returns the limit that forbids it instead, if there is one. */
  admit(
    client: string,
    { open, now }: {
      /** Connections of the ServicePort besides this one. */
      readonly open: number;
      readonly now: number;
    },
  ): ReachedLimit | undefined {
    const { maxConnections = Infinity, maxPerClient = Infinity, maxPerSecond } = this.#settings;
    if (open >= maxConnections) return { limit: "max-connections", bound: maxConnections };
    const own = this.#perClient.get(client) ?? 0;
    if (own >= maxPerClient) return { limit: "max-connections-per-client", bound: maxPerClient };
    if (maxPerSecond !== undefined) {
      this.#refill(maxPerSecond, now);
      if (this.#tokens < 1) return { limit: "max-new-connections-per-second", bound: maxPerSecond };
      this.#tokens--;
    }
    this.#perClient.set(client, own + 1);
    return undefined;
  }

  /** An admitted connection of a client has ended. */
  leave(client: string): void {
    const left = (this.#perClient.get(client) ?? 0) - 1;
    if (left > 0) this.#perClient.set(client, left);
    else this.#perClient.delete(client);
  }

  #refill(perSecond: number, now: number): void {
    const earned = (now - this.#refilledAt) * perSecond / 1000;
    this.#tokens = Math.min(perSecond, this.#tokens + earned);
    this.#refilledAt = now;
  }
}
