import type { Clock } from "../../../lib/os/clock.ts";
import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { ConnectionLimits, type ReachedLimit } from "../connection_limits.ts";
import { EndpointPicker, type EndpointPickerOptions, type PickRequest } from "../endpoint_picker.ts";

/** What the connections of one worker count for. */
interface WorkerShare {
  readonly clients: Map<string, number>;
  readonly endpoints: Map<EndpointKey, number>;
}

/** Decides for the TCP connections of one ServicePort in all workers. */
export class Decider {
  readonly #clock: Clock;
  readonly #picker: EndpointPicker;
  readonly #shares = new Map<number, WorkerShare>();
  #limits: ConnectionLimits | undefined;
  /** Connections that were admitted or entered, and have not left. */
  #open = 0;

  constructor(clock: Clock, { plan, options }: {
    readonly plan: ServicePlan;
    readonly options: EndpointPickerOptions;
  }) {
    this.#clock = clock;
    this.#picker = new EndpointPicker(plan, options);
    this.#updateLimits(plan);
  }

  update(plan: ServicePlan): void {
    this.#picker.update(plan, this.#clock.now());
    this.#updateLimits(plan);
  }

  skip(unhealthy: ReadonlySet<EndpointKey>): void {
    this.#picker.skip(unhealthy, this.#clock.now());
  }

  remembered(client: string): AffinityEntry | undefined {
    return this.#picker.remembered(client, this.#clock.now());
  }

  /** Picks for a worker. The connection loads the endpoint until it is released. */
  pick(worker: number, request: Omit<PickRequest, "now">): Endpoint | undefined {
    const endpoint = this.#picker.pick({ ...request, now: this.#clock.now() });
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
    const reached = this.#limits?.admit(client, { open: this.#open, now: this.#clock.now() });
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

  #updateLimits({ edge = {} }: ServicePlan): void {
    const now = this.#clock.now();
    this.#limits = ConnectionLimits.updated(this.#limits, { settings: edge, now });
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
