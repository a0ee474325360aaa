import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { Balancer, BalanceRequest } from "./balancer.ts";
import type { EndpointLoad } from "./endpoint_load.ts";
import type { EndpointShares } from "./endpoint_shares.ts";

interface RandomChoiceContext {
  readonly shares: EndpointShares | undefined;
  readonly load: EndpointLoad;
  /** From 0 (included) to 1. */
  readonly random: () => number;
}

/** Draws for a second endpoint that differs from the first; with one endpoint there is none. */
const MOST_DRAWS = 3;

/** Draws two endpoints by weight and takes the one with fewer connections for its share. */
export class RandomChoice implements Balancer {
  readonly #context: RandomChoiceContext;
  #endpoints: readonly Endpoint[] = [];
  /** Sums of the weights up to each endpoint. */
  #sums: Float64Array = new Float64Array();

  constructor(endpoints: readonly Endpoint[], context: RandomChoiceContext) {
    this.#context = context;
    this.replace(endpoints);
  }

  replace(endpoints: readonly Endpoint[]): void {
    let sum = 0;
    this.#endpoints = endpoints;
    this.#sums = Float64Array.from(
      endpoints,
      (endpoint) => sum += this.#context.shares?.weightOf(endpoint) ?? 1,
    );
  }

  next(request: BalanceRequest): Endpoint | undefined {
    const { now, exclude } = request;
    if (exclude) return this.#nextBut(request, exclude);
    const one = this.#draw();
    let two = this.#draw();
    for (let tries = 0; tries < MOST_DRAWS && two === one; tries++) two = this.#draw();
    if (one === undefined || two === undefined) return undefined;
    const chosen = this.#loadOf(two, now) < this.#loadOf(one, now) ? two : one;
    this.#context.load.add(chosen.key);
    return chosen;
  }

  /** Only after a failed attempt, so that a walk over all is rare. */
  #nextBut(
    { client, now }: BalanceRequest,
    exclude: ReadonlySet<EndpointKey>,
  ): Endpoint | undefined {
    const left = this.#endpoints.filter(({ key }) => !exclude.has(key));
    return new RandomChoice(left, this.#context).next({ client, now });
  }

  #draw(): Endpoint | undefined {
    const { length } = this.#sums;
    const wanted = this.#context.random() * (this.#sums[length - 1] ?? 0);
    let [low, high] = [0, length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#sums[middle]! > wanted) high = middle;
      else low = middle + 1;
    }
    return this.#endpoints[low];
  }

  #loadOf(endpoint: Endpoint, now: number): number {
    const { load, shares } = this.#context;
    return (load.of(endpoint.key) + 1) / (shares?.shareOf(endpoint, now) ?? 1);
  }
}
