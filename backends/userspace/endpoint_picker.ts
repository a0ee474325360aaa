import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { AffinityTable } from "./affinity_table.ts";

/** The verdicts of a ServicePlan: each has a rotation of its own. */
export type VerdictName = "internal" | "external" | "externalFromCluster";

/** One request for an endpoint. */
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
   * The start position in the list, from 0 (included) to 1. A random one prevents all nodes of a
   * cluster from starting with the same endpoint. @default {0}
   */
  readonly start?: number;
}

/** Picks the endpoints of one ServicePort. */
export class EndpointPicker {
  readonly #maxClients: number;
  readonly #start: number;
  #plan: ServicePlan;
  // Most ServicePorts of a node see no traffic: nothing is built before the first pick.
  #rotations: Map<VerdictName, Rotation> | undefined;
  #affinity: AffinityTable | undefined;

  constructor(plan: ServicePlan, options: EndpointPickerOptions = {}) {
    this.#plan = plan;
    this.#maxClients = options.maxClients ?? 65_536;
    this.#start = options.start ?? 0;
  }

  /** Clients that are remembered now. */
  get clients(): number {
    return this.#affinity?.size ?? 0;
  }

  /**
   * Adopts a new plan. Rotations continue. Clients keep their endpoints; one whose endpoint was
   * removed gets another at its next connection.
   */
  update(plan: ServicePlan): void {
    this.#plan = plan;
    if (plan.affinityTimeoutSeconds === undefined) this.#affinity = undefined;
    for (const [verdict, rotation] of this.#rotations ?? []) {
      rotation.replace(endpointsOf(plan, verdict));
    }
  }

  /** The endpoint of a client that returns in time; `undefined` = not remembered. */
  remembered(client: string, now: number): AffinityEntry | undefined {
    const { affinityTimeoutSeconds: seconds = 0 } = this.#plan;
    const found = this.#affinity?.entry(client, now - seconds * 1000);
    if (found === undefined) return undefined;
    const { endpoint, usedAt } = found;
    return { endpoint, expiresInSeconds: Math.ceil(seconds - (now - usedAt) / 1000) };
  }

  /** The endpoint for a client; `undefined` when there is none, or none that is not excluded. */
  pick({ verdict, client, now, exclude }: PickRequest): Endpoint | undefined {
    const rotation = this.#rotation(verdict);
    const { affinityTimeoutSeconds } = this.#plan;
    if (affinityTimeoutSeconds === undefined) return rotation.next(exclude);
    const affinity = this.#affinity ??= new AffinityTable(this.#maxClients);
    const since = now - affinityTimeoutSeconds * 1000;
    const bound = affinity.find(client, since);
    const endpoint = (bound && !exclude?.has(bound) ? rotation.find(bound) : undefined) ??
      rotation.next(exclude);
    if (endpoint) affinity.bind(client, endpoint.key, { now, since });
    return endpoint;
  }

  allows(verdict: VerdictName, endpoint: EndpointKey): boolean {
    return this.#rotation(verdict).find(endpoint) !== undefined;
  }

  #rotation(verdict: VerdictName): Rotation {
    const rotations = this.#rotations ??= new Map();
    let rotation = rotations.get(verdict);
    if (!rotation) {
      rotation = new Rotation(endpointsOf(this.#plan, verdict), this.#start);
      rotations.set(verdict, rotation);
    }
    return rotation;
  }
}

/** The endpoints of one verdict, and the next one in turn. */
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
    // Lists are sorted by key, so the rotation continues at the same endpoint or the one after it.
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
