import type { IpAddress } from "../../lib/net/ip_address.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import {
  type ServiceKey,
  serviceKey,
  type ServicePortKey,
} from "../../lib/proxy/service_port_name.ts";
import type { ServiceTraffic } from "../../lib/proxy/service_traffic.ts";
import type { EndpointAges } from "./balancers.ts";
import { EndpointPicker, type SharedServicePlan } from "./endpoint_picker.ts";
import { ExpiryQueue, type RecencyItem } from "./expiry_queue.ts";
import type { FlowOutcome, Forwarding } from "./forwarding.ts";
import type { ServiceAddress } from "./listeners.ts";
import { type CountKey, countKey, type SharedCounts } from "./shared_counts.ts";

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
  /** The count of the client's connections; `undefined` = not counted. */
  counted: CountKey | undefined;
}

/** The client of connections that only the limit of all connections counts. */
const BEFORE: CountKey = { home: 0, tag: 0 };

/**
 * The limits of one Service, which all of its ports share, in all threads. Nothing waits: what is above
 * a limit is refused.
 */
export class ConnectionLimits {
  readonly #counts: () => SharedCounts;
  readonly #service: ServiceKey;
  readonly #all: CountKey;
  #settings: EdgeSettings | undefined;

  constructor(counts: () => SharedCounts, service: ServiceKey) {
    this.#counts = counts;
    this.#service = service;
    this.#all = countKey(`${service} `);
  }

  /**
   * Adopts other settings, with the counts so far. Open connections from before there were limits
   * count for the limit of all connections only.
   */
  update(settings: EdgeSettings, open: Iterable<Counted>): void {
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
    const own = countKey(`${this.#service} ${client}`);
    if (!counts.add(own, maxPerClient)) {
      counts.remove(this.#all);
      return { limit: "max-connections-per-client", bound: maxPerClient };
    }
    if (maxPerSecond !== undefined && !counts.spend(this.#all, maxPerSecond, now)) {
      counts.remove(this.#all);
      counts.remove(own);
      return { limit: "max-new-connections-per-second", bound: maxPerSecond };
    }
    connection.counted = own;
    return undefined;
  }

  /** A connection has ended, or is not begun. */
  leave(connection: Counted): void {
    const { counted } = connection;
    if (counted === undefined) return;
    connection.counted = undefined;
    this.#counts().remove(this.#all);
    if (counted !== BEFORE) this.#counts().remove(counted);
  }
}

/** A connection or flow. */
export interface Relayed<T> extends RecencyItem<T>, Counted {
  /** Its place among those that may live for a limited time. */
  lifetime: Lifetime<T> | undefined;
}

interface Lifetime<T> extends RecencyItem<Lifetime<T>> {
  readonly of: T;
}

/** An item's place in the order of last use is brought up to date once in so long, to save CPU. */
const ACTIVITY_GRAIN_MS = 1000;
/** The same as a part of the idle time-out, so that a busy item never seems idle. */
const GRAINS_PER_IDLE_TIME = 50;

const LIMITED = {
  connection: "Refused a connection: a limit of its Service is reached",
  flow: "Refused a flow: a limit of its Service is reached",
} as const;

/**
 * What the connections and the flows of one ServicePort have in common: the choice of endpoints, limits,
 * time-outs and counters.
 */
export abstract class Forwarder<T extends Relayed<T>> {
  abstract readonly use: "connection" | "flow";
  readonly service: ServiceKey;
  readonly forwarding: Forwarding;
  protected readonly picker: EndpointPicker;
  /** Those that are open, the longest unused first. */
  protected readonly items: ExpiryQueue<T>;
  protected plan: ServicePlan;
  readonly #idleMs: number;
  // Made with the annotations of the Service, once there are any.
  #limits: ConnectionLimits | undefined;
  #lifetimes: ExpiryQueue<Lifetime<T>> | undefined;
  #traffic: ServiceTraffic | undefined;

  /** `idleMs`: the idle time-out of a Service that has none of its own. */
  constructor(forwarding: Forwarding, plan: SharedServicePlan, idleMs: number) {
    this.forwarding = forwarding;
    this.plan = plan;
    this.service = serviceKey(plan.name);
    const { counts, random } = forwarding;
    this.picker = new EndpointPicker(plan, { start: random(), random, counts });
    this.#idleMs = idleMs;
    this.items = new ExpiryQueue(forwarding.clock, idleMs, (item) => this.expire(item, "idle"));
  }

  get key(): ServicePortKey {
    return this.plan.key;
  }

  /** {@linkcode traffic}, if there was any. */
  get trafficSoFar(): Readonly<ServiceTraffic> | undefined {
    return this.#traffic;
  }

  /** Counters of the Service, where they are wanted. Those without traffic take no place. */
  get traffic(): ServiceTraffic | undefined {
    return this.#traffic ??= this.forwarding.traffic?.enter(this.plan.name);
  }

  /** Connections or flows that are open now. */
  get size(): number {
    return this.items.size;
  }

  /** Those whose client is known. */
  get connections(): number {
    return this.items.size;
  }

  /** Adopts another plan for what is new. */
  update(plan: ServicePlan): void {
    const { edge } = this.plan;
    this.plan = plan;
    // A worker gets equal settings as another object: time-outs would begin again.
    if (!deepEqual(plan.edge, edge)) this.applySettings(plan.edge ?? {});
    this.picker.update(plan, this.now);
  }

  /** As {@linkcode EndpointPicker.skip}. */
  skip(unhealthy: ReadonlySet<EndpointKey>): void {
    this.picker.skip(unhealthy, this.now);
  }

  /** As {@linkcode EndpointPicker.restoreAges}. */
  restoreAges(ages: EndpointAges): void {
    this.picker.restoreAges(ages, this.now);
  }

  /** As {@linkcode EndpointPicker.remembered}. */
  remembered(client: string): AffinityEntry | undefined {
    return this.picker.remembered(client, this.now);
  }

  /** Data came, in either direction. */
  touch(item: T): void {
    const { now } = this;
    const grainMs = Math.min(ACTIVITY_GRAIN_MS, this.items.ttlMs / GRAINS_PER_IDLE_TIME);
    if (now - item.usedAt >= grainMs) this.items.touch(item, now);
  }

  /** Closes up to `count` that were unused for so long, the longest unused first. Returns their number. */
  closeSilent(count: number, silentMs: number = this.forwarding.options.silentMs): number {
    let closed = 0;
    for (const item of this.silentSince(this.now - silentMs)) {
      if (closed === count) break;
      this.end(item);
      closed++;
    }
    return closed;
  }

  /** Whether {@linkcode closeSilent} would close one. */
  hasSilent(silentMs: number): boolean {
    const { oldest } = this.items;
    return oldest !== undefined && oldest.usedAt <= this.now - silentMs;
  }

  /** Closes all. */
  close(): void {
    for (const item of this.items) this.end(item);
  }

  /** Those without data since then, the longest unused first. */
  protected *silentSince(before: number): IterableIterator<T> {
    for (const item of this.items) {
      if (item.usedAt > before) return;
      yield item;
    }
  }

  /** Closes a connection or flow, unless it is closed. */
  protected abstract end(item: T): void;

  /** A time-out is over. */
  protected abstract expire(item: T, after: "idle" | "lifetime"): void;

  protected get now(): number {
    return this.forwarding.clock.now();
  }

  /**
   * Adopts the annotations of the Service. Lifetimes begin again; limits count what was begun since there
   * are limits.
   */
  protected applySettings({ idleMs = this.#idleMs, lifetimeMs, ...limits }: EdgeSettings): void {
    const { clock, counts } = this.forwarding;
    this.#limits ??= new ConnectionLimits(counts, this.service);
    this.#limits.update(limits, this.items);
    this.#lifetimes?.close();
    this.#lifetimes = lifetimeMs === undefined
      ? undefined
      : new ExpiryQueue<Lifetime<T>>(clock, lifetimeMs, ({ of }) => this.expire(of, "lifetime"));
    for (const item of this.items) this.#beginLifetime(item);
    this.items.expireAfter(idleMs);
  }

  /** The ServicePort was removed: what is open counts for no limit of its Service any more. */
  remove(): void {
    this.#limits?.update({}, this.items);
    this.forwarding.traffic?.leave(this.plan.name);
  }

  /** Whether the limits admit a client; counts it in `counted` if so. */
  protected admits(counted: Counted, client: string): boolean {
    const reached = this.#limits?.admit(counted, client, this.now);
    if (reached === undefined) return true;
    const { counters, log } = this.forwarding;
    counters[this.use === "flow" ? "udpLimited" : "tcpLimited"]++;
    log.warn(LIMITED[this.use], { servicePort: this.plan.key, client, ...reached });
    return false;
  }

  /** What was admitted is not begun. */
  protected revoke(counted: Counted): void {
    this.#limits?.leave(counted);
  }

  /** A connection or flow begins, for which there is room. */
  protected enter(item: T): void {
    this.items.add(item, this.now);
    this.#beginLifetime(item);
    const { traffic } = this;
    if (traffic) {
      traffic.opened++;
      traffic.open++;
    }
    if (this.items.size === 1) this.forwarding.room.enter(this);
  }

  /** A connection or flow has ended. */
  protected leave(item: T): void {
    const { room } = this.forwarding;
    this.items.delete(item);
    if (item.lifetime) this.#lifetimes?.delete(item.lifetime);
    this.#limits?.leave(item);
    if (this.traffic) this.traffic.open--;
    room.give(this);
    if (this.items.size > 0) return;
    // No timer stays behind: the ServicePort may be removed.
    room.leave(this);
    this.items.close();
    this.#lifetimes?.close();
  }

  /** Reports what became of a connection or flow to those who watch, if there are any. */
  protected report(
    { client, clientPort, at }: {
      readonly client: string;
      readonly clientPort: number;
      readonly at: ServiceAddress;
    },
    outcome: FlowOutcome,
  ): void {
    const { watches } = this.forwarding;
    if (watches.isIdle) return;
    const { address: to, port } = at;
    const { key: service, protocol } = this.plan;
    const from = { client: client as IpAddress, clientPort };
    watches.report({ protocol, service, ...from, to, port, ...outcome }, this.now);
  }

  #beginLifetime(item: T): void {
    if (this.#lifetimes === undefined) return void (item.lifetime = undefined);
    item.lifetime = { of: item, older: undefined, newer: undefined, usedAt: 0 };
    this.#lifetimes.add(item.lifetime, this.now);
  }
}
