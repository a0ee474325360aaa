import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { Balancer, BalanceRequest } from "./balancer.ts";
import type { EndpointLoad } from "./endpoint_load.ts";
import type { EndpointShares } from "./endpoint_shares.ts";
import { type HeapItem, PriorityHeap } from "./priority_heap.ts";

interface Candidate extends HeapItem {
  endpoint: Endpoint;
}

interface OrderedBalancerContext {
  /** Absent = all equal. */
  readonly shares: EndpointShares | undefined;
  /** With it, the endpoint with the fewest connections for its share is first; else, they take turns. */
  readonly load: EndpointLoad | undefined;
  /** As in {@linkcode EndpointPickerOptions}. */
  readonly start: number;
}

/** Shares of endpoints in their slow start are brought up to date this often. */
const REFRESH_MS = 250;

/**
 * Keeps endpoints in the order in which they are chosen: by turns with weights, or by the number of
 * connections. A choice takes a number of steps that grows with the logarithm of their number.
 *
 * With weights, an endpoint's turn comes again after one divided by its share (earliest deadline first),
 * which interleaves turns as smoothly as nginx's round robin, without its walk over all endpoints.
 */
export class OrderedBalancer implements Balancer {
  readonly #context: OrderedBalancerContext;
  #candidates = new Map<EndpointKey, Candidate>();
  #heap = new PriorityHeap<Candidate>([]);
  #turn = 0;
  /** The deadline of the last choice: a new endpoint joins there. */
  #reached = 0;
  #refreshedAt = -Infinity;
  /** Endpoints whose shares were not final at the last refresh. */
  #growing: readonly EndpointKey[] = [];

  constructor(endpoints: readonly Endpoint[], context: OrderedBalancerContext) {
    this.#context = context;
    context.load?.watch((key) => this.#update(key));
    this.replace(endpoints);
  }

  replace(endpoints: readonly Endpoint[]): void {
    const before = this.#candidates;
    const first = Math.floor(this.#context.start * endpoints.length);
    const added = this.#turn;
    this.#turn += endpoints.length;
    this.#candidates = new Map(endpoints.map((endpoint, position) => {
      const turn = added + (position - first + endpoints.length) % endpoints.length;
      const known = before.get(endpoint.key);
      if (known) known.endpoint = endpoint;
      const priority = this.#reached + 1 / this.#shareOf(endpoint, 0);
      return [endpoint.key, known ?? { endpoint, priority, turn, index: 0 }];
    }));
    if (this.#context.load) {
      for (const each of this.#candidates.values()) each.priority = this.#loadOf(each, 0);
    }
    this.#refreshedAt = -Infinity;
    this.#heap = new PriorityHeap([...this.#candidates.values()]);
  }

  next({ now, exclude }: BalanceRequest): Endpoint | undefined {
    if (this.#context.load) this.#refresh(now);
    const candidate = exclude ? this.#firstBut(exclude) : this.#heap.first;
    if (candidate === undefined) return undefined;
    candidate.turn = ++this.#turn;
    if (this.#context.load === undefined) {
      this.#reached = candidate.priority;
      candidate.priority += 1 / this.#shareOf(candidate.endpoint, now);
    }
    this.#heap.moved(candidate);
    return candidate.endpoint;
  }

  /** Only after a failed attempt, so that a walk over all is rare. */
  #firstBut(exclude: ReadonlySet<EndpointKey>): Candidate | undefined {
    const left = [...this.#candidates.values()].filter(({ endpoint }) =>
      !exclude.has(endpoint.key)
    );
    return new PriorityHeap(left.map((candidate) => ({ ...candidate, candidate }))).first
      ?.candidate;
  }

  #update(key: EndpointKey, now = this.#refreshedAt): void {
    const candidate = this.#candidates.get(key);
    if (candidate === undefined) return;
    candidate.priority = this.#loadOf(candidate, now);
    this.#heap.moved(candidate);
  }

  #refresh(now: number): void {
    const { shares } = this.#context;
    if (shares === undefined || now - this.#refreshedAt < REFRESH_MS) return;
    this.#refreshedAt = now;
    const growing = [...shares.growing];
    for (const key of [...this.#growing, ...growing]) this.#update(key, now);
    this.#growing = growing;
  }

  #loadOf({ endpoint }: Candidate, now: number): number {
    return ((this.#context.load?.of(endpoint.key) ?? 0) + 1) / this.#shareOf(endpoint, now);
  }

  #shareOf(endpoint: Endpoint, now: number): number {
    return this.#context.shares?.shareOf(endpoint, now) ?? 1;
  }
}
