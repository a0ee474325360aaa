import type { Endpoint } from "../../../lib/proxy/endpoint.ts";
import type { Balancer, BalanceRequest } from "./balancer.ts";
import type { EndpointLoad } from "./endpoint_load.ts";
import type { EndpointShares } from "./endpoint_shares.ts";

interface Candidate {
  endpoint: Endpoint;
  /** The turn of the last choice, which decides between equals. */
  turn: number;
}

/** Choices after which one is taken although other threads have just taken it as well. */
const MOST_CHOICES = 8;

/**
 * Chooses the endpoint with the fewest connections for its share. It looks at each endpoint: an order that
 * is kept up to date would not know the connections of other threads.
 */
export class LeastLoad implements Balancer {
  readonly #load: EndpointLoad;
  readonly #shares: EndpointShares | undefined;
  readonly #start: number;
  #candidates: readonly Candidate[] = [];
  #turn = 0;

  /** `shares`: absent = all equal; `start` as in {@linkcode EndpointPickerOptions}. */
  constructor(
    endpoints: readonly Endpoint[],
    load: EndpointLoad,
    shares: EndpointShares | undefined,
    start: number,
  ) {
    this.#load = load;
    this.#shares = shares;
    this.#start = start;
    this.replace(endpoints);
  }

  replace(endpoints: readonly Endpoint[]): void {
    const before = new Map(this.#candidates.map((each) => [each.endpoint.key, each]));
    const { length } = endpoints;
    const first = Math.floor(this.#start * length);
    this.#candidates = endpoints.map((endpoint, position) => ({
      endpoint,
      turn: before.get(endpoint.key)?.turn ??
        this.#turn + (position - first + length) % length,
    }));
    this.#turn += length;
  }

  next({ now, exclude }: BalanceRequest): Endpoint | undefined {
    for (let choice = 1;; choice++) {
      let [best, least, seen]: [Candidate | undefined, number, number] = [undefined, Infinity, 0];
      for (const each of this.#candidates) {
        if (exclude?.has(each.endpoint.key)) continue;
        const count = this.#load.of(each.endpoint.key);
        const rank = (count + 1) / (this.#shares?.shareOf(each.endpoint, now) ?? 1);
        if (best && (rank > least || (rank === least && each.turn > best.turn))) continue;
        [best, least, seen] = [each, rank, count];
      }
      if (best === undefined) return undefined;
      const isLast = choice === MOST_CHOICES;
      const isTaken = this.#load.add(best.endpoint.key, isLast ? Infinity : seen + 1);
      if (!isTaken && !isLast) continue;
      best.turn = ++this.#turn;
      return best.endpoint;
    }
  }
}
