/**
 * Which endpoint a new connection or flow goes to: exact round robin, and session affinity.
 * Pure: the time is passed in.
 *
 * @module
 */
import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { type RecencyItem, RecencyList } from "./recency_list.ts";

/** The verdicts of a ServicePlan: each has a rotation of its own. */
export type VerdictName = "internal" | "external" | "externalFromCluster";

/** One wish for an endpoint. */
export interface PickRequest {
  readonly verdict: VerdictName;
  /** Address of the client, without its port. */
  readonly client: string;
  /** Milliseconds that only ever grow. */
  readonly now: number;
  /** Endpoints that could not be reached in this attempt. */
  readonly exclude?: ReadonlySet<EndpointKey>;
}

/** Settings of an {@linkcode EndpointPicker}. */
export interface EndpointPickerOptions {
  /** Clients remembered for session affinity; beyond, the longest absent are forgotten. @default {65536} */
  readonly maxClients?: number;
  /**
   * Where in the list to begin, from 0 (included) to 1. Something random keeps the nodes of a
   * cluster from all beginning with the same endpoint. @default {0}
   */
  readonly start?: number;
}

interface AffinityRecord extends RecencyItem<AffinityRecord> {
  readonly client: string;
  endpoint: EndpointKey;
}

/** How many expired records each pick removes at most: more than it adds, so that the table shrinks. */
const PURGED_PER_PICK = 4;

/** Picks the endpoints of one ServicePort. */
export class EndpointPicker {
  readonly #maxClients: number;
  readonly #start: number;
  #plan: ServicePlan;
  // Most ServicePorts of a node see no traffic: nothing is built before the first pick.
  #rotations = new Map<VerdictName, Rotation>();
  #records: Map<string, AffinityRecord> | undefined;
  #recency = new RecencyList<AffinityRecord>();

  constructor(plan: ServicePlan, options: EndpointPickerOptions = {}) {
    this.#plan = plan;
    this.#maxClients = options.maxClients ?? 65_536;
    this.#start = options.start ?? 0;
  }

  /** Clients that are remembered now. */
  get clients(): number {
    return this.#recency.size;
  }

  /**
   * Goes over to a new plan. Rotations go on where they were. Affinity is kept for every client; one
   * whose endpoint is gone is bound anew when it comes next.
   */
  update(plan: ServicePlan): void {
    this.#plan = plan;
    for (const [verdict, rotation] of this.#rotations) rotation.replace(endpointsOf(plan, verdict));
    if (plan.affinityTimeoutSeconds !== undefined) return;
    this.#records = undefined;
    this.#recency = new RecencyList();
  }

  /** The endpoint for a client; `undefined` when there is none, or none that is not excluded. */
  pick(request: PickRequest): Endpoint | undefined {
    const rotation = this.#rotation(request.verdict);
    const timeout = this.#plan.affinityTimeoutSeconds;
    if (timeout === undefined) return rotation.next(request.exclude);
    return this.#pickWithAffinity(request, { rotation, timeoutMs: timeout * 1000 });
  }

  /** Whether a verdict may pick the endpoint. */
  allows(verdict: VerdictName, endpoint: EndpointKey): boolean {
    return this.#rotation(verdict).find(endpoint) !== undefined;
  }

  #rotation(verdict: VerdictName): Rotation {
    let rotation = this.#rotations.get(verdict);
    if (!rotation) {
      rotation = new Rotation(endpointsOf(this.#plan, verdict), this.#start);
      this.#rotations.set(verdict, rotation);
    }
    return rotation;
  }

  #pickWithAffinity(
    { client, now, exclude }: PickRequest,
    { rotation, timeoutMs }: { rotation: Rotation; timeoutMs: number },
  ): Endpoint | undefined {
    this.#purge(now - timeoutMs);
    const records = this.#records ??= new Map();
    const record = records.get(client);
    const bound = record && record.usedAt > now - timeoutMs && !exclude?.has(record.endpoint)
      ? rotation.find(record.endpoint)
      : undefined;
    const endpoint = bound ?? rotation.next(exclude);
    if (!endpoint) return undefined;
    if (record) {
      record.endpoint = endpoint.key;
      this.#recency.touch(record, now);
    } else this.#remember({ client, endpoint: endpoint.key }, now);
    return endpoint;
  }

  #remember({ client, endpoint }: { client: string; endpoint: EndpointKey }, now: number): void {
    const record = { client, endpoint, older: undefined, newer: undefined, usedAt: now };
    this.#records?.set(client, record);
    this.#recency.add(record, now);
    if (this.#recency.size > this.#maxClients) this.#forgetOldest();
  }

  // A few for each pick in place of a sweep: a table of 65,536 would take longer than 10 ms.
  #purge(before: number): void {
    for (let count = 0; count < PURGED_PER_PICK; count++) {
      const oldest = this.#recency.oldest;
      if (!oldest || oldest.usedAt > before) return;
      this.#forgetOldest();
    }
  }

  #forgetOldest(): void {
    const oldest = this.#recency.oldest;
    if (!oldest) return;
    this.#recency.delete(oldest);
    this.#records?.delete(oldest.client);
  }
}

/** The endpoints of one verdict, and whose turn it is. */
class Rotation {
  readonly #start: number;
  #endpoints: readonly Endpoint[];
  #byKey: Map<EndpointKey, Endpoint> | undefined;
  #next: number;

  constructor(endpoints: readonly Endpoint[], start: number) {
    this.#start = start;
    this.#endpoints = endpoints;
    this.#next = Math.floor(start * endpoints.length);
  }

  replace(endpoints: readonly Endpoint[]): void {
    if (endpoints === this.#endpoints) return;
    // Lists are sorted by key: the turn stays with the same endpoint, or goes to the one after it.
    const turn = this.#endpoints[this.#next]?.key;
    const at = turn === undefined
      ? Math.floor(this.#start * endpoints.length)
      : endpoints.findIndex(({ key }) => key >= turn);
    this.#endpoints = endpoints;
    this.#byKey = undefined;
    this.#next = Math.max(0, at);
  }

  next(exclude: ReadonlySet<EndpointKey> | undefined): Endpoint | undefined {
    const { length } = this.#endpoints;
    for (let tried = 0; tried < length; tried++) {
      const endpoint = this.#endpoints[this.#next];
      this.#next = this.#next + 1 < length ? this.#next + 1 : 0;
      if (endpoint && !exclude?.has(endpoint.key)) return endpoint;
    }
    return undefined;
  }

  find(key: EndpointKey): Endpoint | undefined {
    this.#byKey ??= new Map(this.#endpoints.map((endpoint) => [endpoint.key, endpoint]));
    return this.#byKey.get(key);
  }
}

function endpointsOf(plan: ServicePlan, name: VerdictName): readonly Endpoint[] {
  const verdict = plan[name];
  return verdict.kind === "forward" ? verdict.endpoints : [];
}
