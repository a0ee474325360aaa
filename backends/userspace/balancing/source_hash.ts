import { hashText, mixHash } from "../../../lib/net/text_hash.ts";
import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { Balancer, BalanceRequest } from "./balancer.ts";
import type { EndpointShares } from "./endpoint_shares.ts";

/** Clients are hashed to so many slots; a slot has one endpoint. */
const SLOTS = 65_536;
/** Up to this number of endpoints a walk costs a microsecond, and no slot is remembered. */
const FEW_ENDPOINTS = 64;
const UNKNOWN = -1;

/**
 * Chooses by the client's address. Rendezvous hashing: in each slot every endpoint has a score by its
 * weight, and the highest wins. So an added endpoint takes only its share, and only the share of a
 * removed one moves. Maglev's table moves a few slots more with each change.
 *
 * Winners are found when a slot is first used: all at once would block the event loop for 1,000 endpoints.
 */
export class SourceHash implements Balancer {
  readonly #shares: EndpointShares | undefined;
  #endpoints: readonly Endpoint[] = [];
  #seeds: Int32Array = new Int32Array();
  #weights: Float64Array = new Float64Array();
  /** Index of the endpoint of each slot. */
  #winners: Int32Array | undefined;

  constructor(endpoints: readonly Endpoint[], shares: EndpointShares | undefined) {
    this.#shares = shares;
    this.replace(endpoints);
  }

  replace(endpoints: readonly Endpoint[]): void {
    if (endpoints === this.#endpoints) return;
    this.#endpoints = endpoints;
    this.#seeds = Int32Array.from(endpoints, ({ key }) => hashText(key));
    this.#weights = Float64Array.from(
      endpoints,
      (endpoint) => this.#shares?.weightOf(endpoint) ?? 1,
    );
    if (endpoints.length <= FEW_ENDPOINTS) this.#winners = undefined;
    else this.#winners = (this.#winners ?? new Int32Array(SLOTS)).fill(UNKNOWN);
  }

  next({ client, exclude }: BalanceRequest): Endpoint | undefined {
    const slot = hashText(client) & (SLOTS - 1);
    if (exclude) return this.#endpoints[this.#winnerOf(slot, exclude)];
    const known = this.#winners?.[slot] ?? UNKNOWN;
    if (known !== UNKNOWN) return this.#endpoints[known];
    const winner = this.#winnerOf(slot);
    if (this.#winners) this.#winners[slot] = winner;
    return this.#endpoints[winner];
  }

  #winnerOf(slot: number, exclude?: ReadonlySet<EndpointKey>): number {
    let winner = UNKNOWN;
    let highest = -Infinity;
    for (let index = 0; index < this.#seeds.length; index++) {
      // Never 0 or 1, of which the logarithm would be of no use.
      const part = ((mixHash(this.#seeds[index]! ^ Math.imul(slot + 1, 0x9e3779b1)) >>> 0) + 0.5) /
        2 ** 32;
      const score = -this.#weights[index]! / Math.log(part);
      if (score <= highest || exclude?.has(this.#endpoints[index]!.key)) continue;
      highest = score;
      winner = index;
    }
    return winner;
  }
}
