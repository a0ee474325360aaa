import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { serviceKey, type ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type {
  ConnectionLimits,
  LimitedPort,
  ReachedLimit,
  ServiceLimits,
} from "../connection_limits.ts";
import { EndpointPicker, type PickRequest } from "../endpoint_picker.ts";
import type { Forwarding } from "../forwarding.ts";

/** What the connections of one worker count for. */
interface WorkerShare {
  readonly clients: Map<string, number>;
  readonly endpoints: Map<EndpointKey, number>;
}

/** What deciders share. */
export interface DeciderContext {
  /** Of the main thread. */
  readonly forwarding: Pick<Forwarding, "clock" | "pickerOptions">;
  readonly limits: ServiceLimits;
}

/** Decides for the connections or flows of one ServicePort in all workers. */
export class Decider implements LimitedPort {
  readonly key: ServicePortKey;
  readonly #context: DeciderContext;
  readonly #picker: EndpointPicker;
  readonly #shares = new Map<number, WorkerShare>();
  #plan: ServicePlan;
  #limits: ConnectionLimits | undefined;
  #open = 0;

  constructor(context: DeciderContext, plan: ServicePlan) {
    this.key = plan.key;
    this.#context = context;
    this.#plan = plan;
    this.#picker = new EndpointPicker(plan, context.forwarding.pickerOptions());
    this.#updateLimits(plan);
  }

  /** Connections that were admitted or entered, and have not left. */
  get connections(): number {
    return this.#open;
  }

  /** Whether nothing is open that counts. */
  get isIdle(): boolean {
    return this.#open === 0 && this.#shares.values().every(({ endpoints }) => endpoints.size === 0);
  }

  update(plan: ServicePlan): void {
    this.#plan = plan;
    this.#picker.update(plan, this.#now);
    this.#updateLimits(plan);
  }

  /** The ServicePort was removed: connections that are open no longer count for its Service. */
  remove(): void {
    this.#context.limits.leave(serviceKey(this.#plan.name), this);
  }

  get #now(): number {
    return this.#context.forwarding.clock.now();
  }

  skip(unhealthy: ReadonlySet<EndpointKey>): void {
    this.#picker.skip(unhealthy, this.#now);
  }

  remembered(client: string): AffinityEntry | undefined {
    return this.#picker.remembered(client, this.#now);
  }

  /** Picks for a worker. The connection loads the endpoint until it is released. */
  pick(worker: number, request: Omit<PickRequest, "now">): Endpoint | undefined {
    const endpoint = this.#picker.pick({ ...request, now: this.#now });
    if (!endpoint || !this.#picker.load) return endpoint;
    this.#picker.load.add(endpoint.key);
    add(this.#shareOf(worker).endpoints, endpoint.key);
    return endpoint;
  }

  release(worker: number, endpoint: EndpointKey): void {
    if (remove(this.#shareOf(worker).endpoints, endpoint)) this.#picker.load?.remove(endpoint);
  }

  /** Counts a connection of a worker; returns the limit that forbids it instead, if there is one. */
  admit(worker: number, client: string): ReachedLimit | undefined {
    const reached = this.#limits?.admit(client, {
      ...{ port: this, open: this.#open, now: this.#now },
    });
    if (reached === undefined) this.#count(worker, client);
    return reached;
  }

  /** Counts a connection from before the limits. */
  enter(worker: number): void {
    this.#count(worker, BEFORE);
  }

  leave(worker: number, client: string): void {
    if (!remove(this.#shareOf(worker).clients, client)) return;
    this.#open--;
    if (client !== BEFORE) this.#limits?.leave(client);
  }

  /** The connections of a worker have ended with it. */
  forget(worker: number): void {
    const share = this.#shares.get(worker);
    for (const [client, count] of share?.clients ?? []) {
      for (let each = 0; each < count; each++) this.leave(worker, client);
    }
    for (const [endpoint, count] of share?.endpoints ?? []) {
      for (let each = 0; each < count; each++) this.release(worker, endpoint);
    }
    this.#shares.delete(worker);
  }

  #count(worker: number, client: string): void {
    add(this.#shareOf(worker).clients, client);
    this.#open++;
  }

  #updateLimits({ edge: settings = {}, name }: ServicePlan): void {
    const { limits } = this.#context;
    this.#limits = limits.update(serviceKey(name), { port: this, settings, now: this.#now });
  }

  #shareOf(worker: number): WorkerShare {
    return this.#shares.getOrInsertComputed(worker, () => ({
      ...{ clients: new Map(), endpoints: new Map() },
    }));
  }
}

/** The client of connections that only the limit of all connections counts. */
const BEFORE = "";

function add<Key>(counts: Map<Key, number>, key: Key): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

/** Returns whether there was one. */
function remove<Key>(counts: Map<Key, number>, key: Key): boolean {
  const before = counts.get(key) ?? 0;
  if (before > 1) counts.set(key, before - 1);
  else counts.delete(key);
  return before > 0;
}
