import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { Balancer, BalanceRequest } from "./balancer.ts";
import type { EndpointShares } from "./endpoint_shares.ts";

interface Candidate {
  readonly endpoint: Endpoint;
  /** The turn of the last choice, which decides between equals. */
  turn: number;
  /** When its turn comes again. */
  deadline: number;
}

/**
 * Gives turns by weight. An endpoint's turn comes again after one divided by its share (earliest deadline
 * first), which interleaves turns as smoothly as nginx's round robin.
 */
export class WeightedTurns implements Balancer {
  readonly #shares: EndpointShares;
  readonly #start: number;
  /** A binary heap: of each, those at twice its place come later, and the first is next. */
  #heap: Candidate[] = [];
  #turn = 0;
  /** The deadline of the last choice: a new endpoint joins there. */
  #reached = 0;

  /** `start` as in {@linkcode EndpointPickerOptions}. */
  constructor(endpoints: readonly Endpoint[], shares: EndpointShares, start: number) {
    this.#shares = shares;
    this.#start = start;
    this.replace(endpoints);
  }

  replace(endpoints: readonly Endpoint[]): void {
    const before = new Map(this.#heap.map((each) => [each.endpoint.key, each]));
    const { length } = endpoints;
    const first = Math.floor(this.#start * length);
    this.#heap = endpoints.map((endpoint, position) => {
      const known = before.get(endpoint.key);
      if (known) return { ...known, endpoint };
      const turn = this.#turn + 1 + (position - first + length) % length;
      return { endpoint, turn, deadline: this.#reached + 1 / this.#shares.shareOf(endpoint, 0) };
    }).sort((left, right) => isBefore(left, right) ? -1 : 1);
    this.#turn += length;
  }

  next({ now, exclude }: BalanceRequest): Endpoint | undefined {
    const place = exclude === undefined ? 0 : this.#firstBut(exclude);
    const next = this.#heap[place];
    if (next === undefined) return undefined;
    next.turn = ++this.#turn;
    this.#reached = next.deadline;
    next.deadline += 1 / this.#shares.shareOf(next.endpoint, now);
    this.#sink(place);
    return next.endpoint;
  }

  /** Only after a failed attempt, so that a walk over all is rare. */
  #firstBut(exclude: ReadonlySet<EndpointKey>): number {
    let first = -1;
    for (const [place, each] of this.#heap.entries()) {
      if (exclude.has(each.endpoint.key)) continue;
      if (first < 0 || isBefore(each, this.#heap[first]!)) first = place;
    }
    return first;
  }

  /** Restores the order after the one at a place became later. */
  #sink(place: number): void {
    const heap = this.#heap;
    const later = heap[place]!;
    for (;;) {
      const [left, right] = [2 * place + 1, 2 * place + 2];
      const child = right < heap.length && isBefore(heap[right]!, heap[left]!) ? right : left;
      if (child >= heap.length || isBefore(later, heap[child]!)) break;
      heap[place] = heap[child]!;
      place = child;
    }
    heap[place] = later;
  }
}

function isBefore(left: Candidate, right: Candidate): boolean {
  return left.deadline < right.deadline ||
    (left.deadline === right.deadline && left.turn < right.turn);
}
