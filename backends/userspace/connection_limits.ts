import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import type { ServiceKey, ServicePortKey } from "../../lib/proxy/service_port_name.ts";

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

/** Whether a Service has a limit. */
export function hasLimits({ maxConnections, maxPerClient, maxPerSecond }: LimitSettings): boolean {
  return (maxConnections ?? maxPerClient ?? maxPerSecond) !== undefined;
}

/** A port of a Service, with its open connections or flows. */
export interface LimitedPort {
  readonly key: ServicePortKey;
  readonly connections: number;
}

/** One connection or flow to be admitted. */
interface Admission {
  readonly port: LimitedPort;
  /** Connections of this port besides this one. */
  readonly open: number;
  readonly now: number;
}

/** The limits of one Service, as its ports use them. */
export interface Limits {
  /** Whether another thread is asked. */
  readonly isAsked?: boolean;
  /**
   * Counts a connection of a client; returns the limit that forbids it instead, if there is one. Never
   * rejects.
   */
  admit(
    client: string,
    admission: Admission,
  ): ReachedLimit | undefined | Promise<ReachedLimit | undefined>;
  /** An admitted connection of a client has ended. */
  leave(client: string): void;
  /** Counts a connection from before the limits. Returns the text to {@linkcode leave} with. */
  enter?(): string;
}

/** One admission, and what follows from it. */
interface AskedAdmission extends Admission {
  readonly client: string;
  /** The limits when the answer has come; `undefined` = they were removed. */
  readonly current: () => Limits | undefined;
  /** Returns whether the connection may begin. */
  readonly decide: (reached: ReachedLimit | undefined) => boolean;
}

/** Decides by the answer of limits, at once or when another thread has answered. Never rejects. */
export function admits(
  limits: Limits,
  { client, current, decide, ...admission }: AskedAdmission,
): boolean | Promise<boolean> {
  const reached = limits.admit(client, admission);
  if (!(reached instanceof Promise)) return decide(reached);
  return reached.then((limit) => {
    if (current() !== undefined) return decide(limit);
    // They were removed meanwhile, and count nothing any more.
    if (limit === undefined) limits.leave(client);
    return true;
  });
}

/** The limits of all Services. */
export interface LimitTable {
  update(
    service: ServiceKey,
    options: {
      readonly port: LimitedPort;
      readonly settings: LimitSettings;
      readonly now: number;
    },
  ): Limits | undefined;
  leave(service: ServiceKey, port: LimitedPort): void;
}

/** The limits of Services. The ports of a Service share them. */
export class ServiceLimits implements LimitTable {
  readonly #services = new Map<ServiceKey, ConnectionLimits>();

  /** The number of Services that have limits. */
  get size(): number {
    return this.#services.size;
  }

  /**
   * Applies the settings of a Service to one of its ports, with the counts so far. Returns its limits;
   * `undefined` if there are none.
   */
  update(
    service: ServiceKey,
    { port, settings, now }: {
      readonly port: LimitedPort;
      readonly settings: LimitSettings;
      readonly now: number;
    },
  ): ConnectionLimits | undefined {
    if (!hasLimits(settings)) {
      this.leave(service, port);
      return undefined;
    }
    const limits = this.#services.getOrInsertComputed(
      service,
      () => new ConnectionLimits(settings, now),
    );
    limits.ports.add(port);
    limits.update(settings);
    return limits;
  }

  /** A port has no limits any more, or was removed. */
  leave(service: ServiceKey, port: LimitedPort): void {
    const limits = this.#services.get(service);
    limits?.ports.delete(port);
    if (limits?.ports.size === 0) this.#services.delete(service);
  }
}

/** The limits of one Service. Nothing waits: what is above a limit is refused. */
export class ConnectionLimits implements Limits {
  readonly ports = new Set<LimitedPort>();
  #settings: LimitSettings;
  /** Admitted connections of each client; as many entries as there are clients with connections. */
  readonly #perClient = new Map<string, number>();
  /** Connections that may begin at once; refilled at the rate of the limit. */
  #tokens: number;
  #refilledAt: number;

  constructor(settings: LimitSettings, now: number) {
    this.#settings = settings;
    this.#tokens = settings.maxPerSecond ?? 0;
    this.#refilledAt = now;
  }

  /** Adopts other settings, with the counts so far. */
  update(settings: LimitSettings): void {
    if (this.#settings.maxPerSecond === undefined) this.#tokens = settings.maxPerSecond ?? 0;
    this.#settings = settings;
  }

  /** Counts a connection of a client; returns the limit that forbids it instead, if there is one. */
  admit(
    client: string,
    { port, open, now }: Admission,
  ): ReachedLimit | undefined {
    const { maxConnections = Infinity, maxPerClient = Infinity, maxPerSecond } = this.#settings;
    if (open + this.#openBesides(port) >= maxConnections) {
      return { limit: "max-connections", bound: maxConnections };
    }
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

  #openBesides(port: LimitedPort): number {
    return this.ports.values().reduce(
      (sum, each) => each === port ? sum : sum + each.connections,
      0,
    );
  }

  #refill(perSecond: number, now: number): void {
    const earned = (now - this.#refilledAt) * perSecond / 1000;
    this.#tokens = Math.min(perSecond, this.#tokens + earned);
    this.#refilledAt = now;
  }
}
