import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import type { Endpoint, EndpointKey } from "../../lib/proxy/endpoint.ts";
import type { AffinityEntry } from "../../lib/proxy/packet_explanation.ts";
import { usableEndpoints } from "./health/usable_endpoints.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { deepEqual } from "../../lib/proxy/deep_equal.ts";
import { AffinityTable } from "./affinity_table.ts";
import type { Balancer, BalanceRequest } from "./balancing/balancer.ts";
import { EndpointLoad } from "./balancing/endpoint_load.ts";
import { type EndpointAges, EndpointShares } from "./balancing/endpoint_shares.ts";
import { OrderedBalancer } from "./balancing/ordered_balancer.ts";
import { RandomChoice } from "./balancing/random_choice.ts";
import { Rotation } from "./balancing/rotation.ts";
import { SourceHash } from "./balancing/source_hash.ts";

/** The verdicts of a ServicePlan: each has a rotation of its own. */
export type VerdictName = "internal" | "external" | "externalFromCluster";

/** One request for an endpoint. */
export interface PickRequest extends BalanceRequest {
  readonly verdict: VerdictName;
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
  /** From 0 (included) to 1, for balance `random-two-choices`. @default {() => 0} */
  readonly random?: () => number;
}

/** Picks endpoints, in this thread or in the one that decides. */
export interface Picker {
  /** Counts attempts and connections of each endpoint; absent if no choice depends on them. */
  readonly load: Pick<EndpointLoad, "add" | "remove"> | undefined;
  update(plan: ServicePlan, now: number): void;
  skip(unhealthy: ReadonlySet<EndpointKey>, now: number): void;
  restoreAges(ages: EndpointAges, now: number): void;
  remembered(client: string, now: number): AffinityEntry | undefined;
  pick(request: PickRequest): Endpoint | undefined | Promise<Endpoint | undefined>;
}

/** The verdicts, whose endpoints together are those of a plan. */
const VERDICT_NAMES: readonly VerdictName[] = ["internal", "external", "externalFromCluster"];

/** Picks the endpoints of one ServicePort. */
export class EndpointPicker implements Picker {
  readonly #maxClients: number;
  readonly #start: number;
  readonly #random: () => number;
  #plan: ServicePlan;
  // Most ServicePorts of a node see no traffic: nothing is built before the first pick.
  #balancers: Map<VerdictName, Balancer> | undefined;
  #byKey: Map<VerdictName, ReadonlyMap<EndpointKey, Endpoint>> | undefined;
  #affinity: AffinityTable | undefined;
  #shares: EndpointShares | undefined;
  #load: EndpointLoad | undefined;
  #unhealthy: ReadonlySet<EndpointKey> = new Set();

  constructor(plan: ServicePlan, options: EndpointPickerOptions = {}) {
    this.#plan = plan;
    this.#maxClients = options.maxClients ?? 65_536;
    this.#start = options.start ?? 0;
    this.#random = options.random ?? (() => 0);
    if (plan.edge) this.#applySettings();
  }

  /** Where connections to endpoints are to be counted; absent if no choice depends on them. */
  get load(): EndpointLoad | undefined {
    return this.#load;
  }

  /** Clients that are remembered now. */
  get clients(): number {
    return this.#affinity?.size ?? 0;
  }

  /**
   * Adopts a new plan. Rotations continue. Clients keep their endpoints; one whose endpoint was
   * removed gets another at its next connection.
   */
  update(plan: ServicePlan, now: number): void {
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
    const { affinityTimeoutSeconds: seconds = 0 } = this.#plan;
    const found = this.#affinity?.entry(client, now - seconds * 1000);
    if (found === undefined) return undefined;
    const { endpoint, usedAt } = found;
    return { endpoint, expiresInSeconds: Math.ceil(seconds - (now - usedAt) / 1000) };
  }

  /** The endpoint for a client; `undefined` when there is none, or none that is not excluded. */
  pick(request: PickRequest): Endpoint | undefined {
    const balancer = this.#balancer(request.verdict);
    const { affinityTimeoutSeconds } = this.#plan;
    if (affinityTimeoutSeconds === undefined) return balancer.next(request);
    const { client, now, exclude } = request;
    const affinity = this.#affinity ??= new AffinityTable(this.#maxClients);
    const since = now - affinityTimeoutSeconds * 1000;
    const bound = affinity.find(client, since);
    const endpoint =
      (bound && !exclude?.has(bound) ? this.#find(request.verdict, bound) : undefined) ??
        balancer.next(request);
    if (endpoint) affinity.bind(client, endpoint.key, { now, since });
    return endpoint;
  }

  allows(verdict: VerdictName, endpoint: EndpointKey): boolean {
    return this.#find(verdict, endpoint) !== undefined;
  }

  #applySettings(): void {
    const { edge = {} } = this.#plan;
    const { balance, slowStartMs, weights } = edge;
    this.#balancers = this.#byKey = undefined;
    this.#load?.unwatch();
    this.#shares = slowStartMs === undefined && weights === undefined
      ? undefined
      : new EndpointShares(edge, this.#keys());
    this.#load = balance === "least-connections" || balance === "random-two-choices"
      ? (this.#load ?? new EndpointLoad())
      : undefined;
  }

  #replaceEndpoints(now: number): void {
    this.#byKey = undefined;
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

  #find(verdict: VerdictName, key: EndpointKey): Endpoint | undefined {
    const byKey = (this.#byKey ??= new Map()).getOrInsertComputed(
      verdict,
      () => new Map(this.#endpointsOf(verdict).map((endpoint) => [endpoint.key, endpoint])),
    );
    return byKey.get(key);
  }

  #keys(): ReadonlySet<EndpointKey> {
    return new Set(VERDICT_NAMES.flatMap((name) => this.#endpointsOf(name).map(({ key }) => key)));
  }

  #balancer(verdict: VerdictName): Balancer {
    const balancers = this.#balancers ??= new Map();
    let balancer = balancers.get(verdict);
    if (!balancer) {
      balancer = this.#createBalancer(this.#endpointsOf(verdict));
      balancers.set(verdict, balancer);
    }
    return balancer;
  }

  #createBalancer(endpoints: readonly Endpoint[]): Balancer {
    const [shares, load, start] = [this.#shares, this.#load, this.#start];
    const { balance } = this.#plan.edge ?? {};
    if (balance === "source-hash") return new SourceHash(endpoints, shares);
    if (balance === "random-two-choices" && load) {
      return new RandomChoice(endpoints, { shares, load, random: this.#random });
    }
    if (shares || load) return new OrderedBalancer(endpoints, { shares, load, start });
    return new Rotation(endpoints, start);
  }
}

function hasSameBalance(left: EdgeSettings = {}, right: EdgeSettings = {}): boolean {
  return left.balance === right.balance && left.slowStartMs === right.slowStartMs &&
    deepEqual(left.weights, right.weights);
}
