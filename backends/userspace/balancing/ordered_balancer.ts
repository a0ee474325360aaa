import type { Endpoint } from "../../../lib/proxy/endpoint.ts";
import type { Balancer, BalanceRequest } from "./balancer.ts";
import type { EndpointLoad } from "./endpoint_load.ts";
import type { EndpointShares } from "./endpoint_shares.ts";

interface Candidate {
  endpoint: Endpoint;
  /** The turn of the last choice, which decides between equals. */
  turn: number;
  /** When its turn comes again, without {@linkcode OrderedBalancerContext.load}. */
  deadline: number;
}

interface OrderedBalancerContext {
  /** Absent = all equal. */
  readonly shares: EndpointShares | undefined;
  /** With it, the endpoint with the fewest connections for its share is first; else, they take turns. */
  readonly load: EndpointLoad | undefined;
  /** As in {@linkcode EndpointPickerOptions}. */
  readonly start: number;
}

/** Choices after which one is taken although other threads have just taken it as well. */
const MOST_CHOICES = 8;

/**
 * Chooses by turns with weights, or by the number of connections. It looks at each endpoint, which takes
 * some nanoseconds: an order that is kept up to date would not know the connections of other threads.
 *
 * With weights, an endpoint's turn comes again after one divided by its share (earliest deadline first),
 * which interleaves turns as smoothly as nginx's round robin.
 */
export class OrderedBalancer implements Balancer {
  readonly #context: OrderedBalancerContext;
  #candidates: readonly Candidate[] = [];
  #turn = 0;
  /** The deadline of the last choice: a new endpoint joins there. */
  #reached = 0;

  constructor(endpoints: readonly Endpoint[], context: OrderedBalancerContext) {
    this.#context = context;
    this.replace(endpoints);
  }

  replace(endpoints: readonly Endpoint[]): void {
    const before = new Map(this.#candidates.map((each) => [each.endpoint.key, each]));
    const first = Math.floor(this.#context.start * endpoints.length);
    const added = this.#turn;
    this.#turn += endpoints.length;
    this.#candidates = endpoints.map((endpoint, position) => {
      const known = before.get(endpoint.key);
      if (known) known.endpoint = endpoint;
      const turn = added + (position - first + endpoints.length) % endpoints.length;
      const deadline = this.#reached + 1 / this.#shareOf(endpoint, 0);
      return known ?? { endpoint, turn, deadline };
    });
  }

  next({ now, exclude }: BalanceRequest): Endpoint | undefined {
    const { load } = this.#context;
    for (let choice = 1;; choice++) {
      let [best, least, seen]: [Candidate | undefined, number, number] = [undefined, Infinity, 0];
      for (const each of this.#candidates) {
        if (exclude?.has(each.endpoint.key)) continue;
        const count = load?.of(each.endpoint.key) ?? 0;
        const rank = load ? (count + 1) / this.#shareOf(each.endpoint, now) : each.deadline;
        if (best && (rank > least || (rank === least && each.turn > best.turn))) continue;
        [best, least, seen] = [each, rank, count];
      }
      if (best === undefined) return undefined;
      const isLast = choice === MOST_CHOICES;
      if (load && !load.add(best.endpoint.key, isLast ? Infinity : seen + 1) && !isLast) continue;
      best.turn = ++this.#turn;
      if (load === undefined) {
        this.#reached = best.deadline;
        best.deadline += 1 / this.#shareOf(best.endpoint, now);
      }
      return best.endpoint;
    }
  }

  #shareOf(endpoint: Endpoint, now: number): number {
    return this.#context.shares?.shareOf(endpoint, now) ?? 1;
  }
}
