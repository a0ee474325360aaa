import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../lib/proxy/packet_explanation.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import { AffinityTable, endpointNumber } from "./affinity_table.ts";
import {
  type Balancer,
  type BalanceRequest,
  createBalancer,
  type EndpointAges,
  EndpointLoad,
  EndpointShares,
} from "./balancers.ts";
import { createCountMemory, SharedCounts } from "./shared_counts.ts";

/** The verdicts of a ServicePlan: each has a rotation of its own. */
export type VerdictName = "internal" | "external" | "externalFromCluster";

/** One request for an endpoint. */
export interface PickRequest extends BalanceRequest {
  readonly verdict: VerdictName;
}

/** A plan, with the memory in which several threads remember clients. */
export interface SharedServicePlan extends ServicePlan {
  readonly affinityMemory?: ArrayBufferLike;
}

/** Settings of an {@linkcode EndpointPicker}. */
export interface EndpointPickerOptions {
  /**
   * The start position in the list, from 0 (included) to 1. A random one prevents all nodes of a
   * cluster from starting with the same endpoint. @default {0}
   */
  readonly start?: number;
  /** From 0 (included) to 1, for balance `random-two-choices`. @default {() => 0} */
  readonly random?: () => number;
  /** Counts connections. @default {those of this picker alone} */
  readonly counts?: () => SharedCounts;
}

/** The verdicts, whose endpoints together are those of a plan. */
const VERDICT_NAMES: readonly VerdictName[] = ["internal", "external", "externalFromCluster"];

/** Picks the endpoints of one ServicePort. */
export class EndpointPicker {
  readonly #start: number;
  readonly #random: () => number;
  readonly #counts: () => SharedCounts;
  #plan: SharedServicePlan;
  // Most ServicePorts of a node see no traffic: nothing is built before the first pick.
  #balancers: Map<VerdictName, Balancer> | undefined;
  /** The endpoints of each verdict, by key and by number. Two may have one number: it is the first's. */
  #known: Map<VerdictName, ReadonlyMap<EndpointKey | number, Endpoint>> | undefined;
  #affinity: AffinityTable | undefined;
  #shares: EndpointShares | undefined;
  #load: EndpointLoad | undefined;
  #unhealthy: ReadonlySet<EndpointKey> = new Set();

  constructor(plan: SharedServicePlan, options: EndpointPickerOptions = {}) {
    this.#plan = plan;
    this.#start = options.start ?? 0;
    this.#random = options.random ?? (() => 0);
    this.#counts = options.counts ?? (() => new SharedCounts(createCountMemory(1, 1), 0));
    if (plan.edge) this.#applySettings();
  }

  /** Counts the connections to each endpoint; absent if no choice depends on them. */
  get load(): EndpointLoad | undefined {
    return this.#load;
  }

  /**
   * Adopts a new plan. Rotations continue. Clients keep their endpoints; one whose endpoint was
   * removed gets another at its next connection.
   */
  update(plan: SharedServicePlan, now: number): void {
    const { edge } = this.#plan;
    this.#plan = plan;
    if (plan.affinityTimeoutSeconds === undefined) this.#affinity = undefined;
    if (plan.edge !== edge && !hasSameBalance(plan.edge, edge)) return this.#applySettings();
    this.#replaceEndpoints(now);
  }

  /**
   * Replaces the set of unhealthy endpoints, which are not picked as long as enough others are healthy.
   * One that leaves the set begins with a slow start, if the Service has one.
   */
  skip(unhealthy: ReadonlySet<EndpointKey>, now: number): void {
    this.#unhealthy = unhealthy;
    this.#replaceEndpoints(now);
  }

  /** The endpoints in their slow start. */
  agesAt(now: number): EndpointAges {
    return this.#shares?.agesAt(now) ?? new Map();
  }

  /** Continues slow starts that began in another thread. */
  restoreAges(ages: EndpointAges, now: number): void {
    this.#shares?.restore(ages, now);
  }

  /** The endpoint of a client that returns in time; `undefined` = not remembered. */
  remembered(client: string, now: number): AffinityEntry | undefined {
    const { affinityTimeoutSeconds: seconds } = this.#plan;
    if (seconds === undefined) return undefined;
    const { age, endpoint: number } = this.#clients().find(client, now, 1000 * seconds);
    const endpoint = number === undefined
      ? undefined
      : this.#keys().values().find((key) => endpointNumber(key) === number);
    return endpoint && { endpoint, expiresInSeconds: Math.ceil(seconds - age / 1000) };
  }

  /**
   * The endpoint for a client; `undefined` when there is none, or none that is not excluded. It counts
   * for its {@linkcode load} from now on.
   */
  pick(request: PickRequest): Endpoint | undefined {
    const balancer = this.#balancer(request.verdict);
    const { affinityTimeoutSeconds } = this.#plan;
    if (affinityTimeoutSeconds === undefined) return balancer.next(request);
    const { client, now, exclude, verdict } = request;
    const clients = this.#clients();
    for (;;) {
      const record = clients.find(client, now, 1000 * affinityTimeoutSeconds);
      const bound = record.endpoint === undefined
        ? undefined
        : this.#knownOf(verdict).get(record.endpoint);
      const isKept = bound !== undefined && !exclude?.has(bound.key);
      let endpoint = isKept ? bound : balancer.next(request);
      if (!endpoint) return undefined;
      if (isKept) this.#load?.add(endpoint.key);
      const number = endpointNumber(endpoint.key);
      const first = this.#knownOf(verdict).get(number);
      // The client would return to this one.
      if (first && first !== endpoint && !exclude?.has(first.key)) {
        this.#load?.remove(endpoint.key);
        this.#load?.add(first.key);
        endpoint = first;
      }
      if (clients.bind(record, number, now)) return endpoint;
      this.#load?.remove(endpoint.key);
    }
  }

  allows(verdict: VerdictName, endpoint: EndpointKey): boolean {
    return this.#knownOf(verdict).has(endpoint);
  }

  #clients(): AffinityTable {
    return this.#affinity ??= new AffinityTable(this.#plan.affinityMemory);
  }

  #applySettings(): void {
    const { edge = {} } = this.#plan;
    const { balance, slowStartMs, weights } = edge;
    this.#balancers = this.#known = undefined;
    this.#shares = slowStartMs === undefined && weights === undefined
      ? undefined
      : new EndpointShares(edge, this.#keys());
    this.#load = balance === "least-connections" || balance === "random-two-choices"
      ? (this.#load ?? new EndpointLoad(this.#counts(), this.#plan.key))
      : undefined;
  }

  #replaceEndpoints(now: number): void {
    this.#known = undefined;
    this.#load?.trim();
    this.#shares?.update(this.#keys(), now);
    for (const [verdict, balancer] of this.#balancers ?? []) {
      balancer.replace(this.#endpointsOf(verdict));
    }
  }

  #endpointsOf(name: VerdictName): readonly Endpoint[] {
    const verdict = this.#plan[name];
    if (verdict.kind !== "forward") return [];
    return usableEndpoints(verdict.endpoints, this.#unhealthy, this.#plan.edge);
  }

  #knownOf(verdict: VerdictName): ReadonlyMap<EndpointKey | number, Endpoint> {
    return (this.#known ??= new Map()).getOrInsertComputed(verdict, () => {
      const known = new Map<EndpointKey | number, Endpoint>();
      for (const endpoint of this.#endpointsOf(verdict)) {
        known.set(endpoint.key, endpoint);
        known.getOrInsert(endpointNumber(endpoint.key), endpoint);
      }
      return known;
    });
  }

  #keys(): ReadonlySet<EndpointKey> {
    return new Set(VERDICT_NAMES.flatMap((name) => this.#endpointsOf(name).map(({ key }) => key)));
  }

  #balancer(verdict: VerdictName): Balancer {
    return (this.#balancers ??= new Map()).getOrInsertComputed(verdict, () => {
      const [shares, load, start, random] = [this.#shares, this.#load, this.#start, this.#random];
      const context = { shares, load, start, random };
      const balancer = createBalancer(this.#plan.edge?.balance, context);
      balancer.replace(this.#endpointsOf(verdict));
      return balancer;
    });
  }
}

function hasSameBalance(left: EdgeSettings = {}, right: EdgeSettings = {}): boolean {
  return left.balance === right.balance && left.slowStartMs === right.slowStartMs &&
    deepEqual(left.weights, right.weights);
}

/**
 * Below this percentage of healthy endpoints the remaining ones would soon fail of the load, if they do
 * not fail for the same reason. Two of three, and four of five, may fail.
 */
const DEFAULT_THRESHOLD = 20;

/**
 * The endpoints of a verdict that new connections may use: the healthy ones, or all if too few are
 * healthy.
 */
export function usableEndpoints(
  endpoints: readonly Endpoint[],
  unhealthy: ReadonlySet<EndpointKey>,
  { healthThreshold = DEFAULT_THRESHOLD }: Pick<EdgeSettings, "healthThreshold"> = {},
): readonly Endpoint[] {
  if (unhealthy.size === 0) return endpoints;
  const healthy = endpoints.filter(({ key }) => !unhealthy.has(key));
  const isEnough = healthy.length > 0 &&
    100 * healthy.length >= healthThreshold * endpoints.length;
  return isEnough ? healthy : endpoints;
}

/** Why all endpoints of a verdict are used, although some are unhealthy; `undefined` = they are not. */
export function ignoredHealth(
  endpoints: readonly Endpoint[],
  unhealthy: ReadonlySet<EndpointKey>,
  { healthThreshold = DEFAULT_THRESHOLD }: Pick<EdgeSettings, "healthThreshold"> = {},
): string | undefined {
  const { length } = endpoints;
  const healthy = endpoints.filter(({ key }) => !unhealthy.has(key)).length;
  const usable = usableEndpoints(endpoints, unhealthy, { healthThreshold });
  if (healthy === length || usable !== endpoints) return undefined;
  const least = healthy === 0 ? "" : `, less than ${healthThreshold}%`;
  return `health is ignored: ${healthy} of ${length} endpoints are healthy${least}`;
}
