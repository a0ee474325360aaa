import type { EndpointWeight } from "../../../lib/api/service_annotations.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import { type Endpoint, type EndpointKey, endpointKey } from "../../../lib/proxy/endpoint.ts";

/** The share with which an endpoint begins. */
const FIRST_SHARE = 0.1;

/** Milliseconds since endpoints in their slow start appeared. */
export type EndpointAges = ReadonlyMap<EndpointKey, number>;

/** The shares of endpoints: their weights, which grow while an endpoint is new. */
export class EndpointShares {
  readonly #weights: ReadonlyMap<string, number>;
  readonly #slowStartMs: number;
  #known: ReadonlySet<EndpointKey>;
  /** Endpoints that are in their slow start, by the time at which they appeared. */
  readonly #appearedAt = new Map<EndpointKey, number>();

  /** `present` are no new endpoints: their age is unknown. */
  constructor({ weights = [], slowStartMs = 0 }: EdgeSettings, present: Iterable<EndpointKey>) {
    this.#weights = new Map(weights.map((each) => [placeOf(each), each.weight]));
    this.#slowStartMs = slowStartMs;
    this.#known = new Set(present);
  }

  agesAt(now: number): EndpointAges {
    const ages = new Map<EndpointKey, number>();
    for (const [key, appearedAt] of this.#appearedAt) {
      if (now - appearedAt < this.#slowStartMs) ages.set(key, now - appearedAt);
    }
    return ages;
  }

  /** Continues slow starts that began in another thread. */
  restore(ages: EndpointAges, now: number): void {
    for (const [key, age] of ages) {
      if (this.#known.has(key)) this.#appearedAt.set(key, now - age);
    }
  }

  /** Adopts the endpoints that exist now. An endpoint that returns starts slowly again. */
  update(present: Iterable<EndpointKey>, now: number): void {
    if (this.#slowStartMs === 0) return;
    const known = new Set(present);
    for (const key of known) if (!this.#known.has(key)) this.#appearedAt.set(key, now);
    for (const key of this.#appearedAt.keys()) if (!known.has(key)) this.#appearedAt.delete(key);
    this.#known = known;
  }

  weightOf({ key, address }: Endpoint): number {
    return this.#weights.get(key) ?? this.#weights.get(address) ?? 1;
  }

  /** The weight, less during the slow start. */
  shareOf(endpoint: Endpoint, now: number): number {
    const appearedAt = this.#appearedAt.get(endpoint.key);
    const weight = this.weightOf(endpoint);
    if (appearedAt === undefined) return weight;
    const part = (now - appearedAt) / this.#slowStartMs;
    if (part < 1) return weight * Math.max(FIRST_SHARE, part);
    this.#appearedAt.delete(endpoint.key);
    return weight;
  }
}

function placeOf({ address, port }: EndpointWeight): string {
  return port === undefined ? address : endpointKey(address, port);
}
