import type { Endpoint } from "../../../lib/proxy/endpoint.ts";
import type { Balancer, BalanceRequest } from "./balancer.ts";

/** Gives each endpoint its turn: the default. */
export class Rotation implements Balancer {
  readonly #start: number;
  #endpoints: readonly Endpoint[];
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
    this.#next = Math.max(0, at);
  }

  next({ exclude }: BalanceRequest): Endpoint | undefined {
    const { length } = this.#endpoints;
    for (let tried = 0; tried < length; tried++) {
      const endpoint = this.#endpoints[this.#next];
      this.#next = this.#next + 1 < length ? this.#next + 1 : 0;
      if (endpoint && !exclude?.has(endpoint.key)) return endpoint;
    }
    return undefined;
  }
}
