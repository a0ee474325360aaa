/**
 * The ways to choose among the endpoints of one verdict, and what they count and weigh.
 *
 * @module
 */
import { hashText, mixHash } from "../../lib/net/text_hash.ts";
import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import { type Endpoint, type EndpointKey, endpointKey } from "../../lib/proxy/endpoint.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import { type CountKey, countKey, type SharedCounts } from "./shared_counts.ts";

/** One request for an endpoint. */
export interface BalanceRequest {
  /** Address of the client, without its port. */
  readonly client: string;
  /** Milliseconds that only ever grow. */
  readonly now: number;
  /** Endpoints that could not be reached in this attempt. */
  readonly exclude?: ReadonlySet<EndpointKey>;
}

/** Chooses among the endpoints of one verdict. */
export interface Balancer {
  /** Adopts another list, sorted by key. */
  replace(endpoints: readonly Endpoint[]): void;
  /**
   * The endpoint for a new connection, which loads it from now on; `undefined` if there is none, or none
   * that is not excluded.
   */
  next(request: BalanceRequest): Endpoint | undefined;
}

/** Open connections and flows of each endpoint of a ServicePort in all threads, including attempts to connect. */
export class EndpointLoad {
  readonly #counts: SharedCounts;
  readonly #servicePort: ServicePortKey;
  /** Those of the endpoints of the plan. */
  #keys = new Map<EndpointKey, CountKey>();

  constructor(counts: SharedCounts, servicePort: ServicePortKey) {
    this.#counts = counts;
    this.#servicePort = servicePort;
  }

  of(key: EndpointKey): number {
    return this.#counts.of(this.#keyOf(key));
  }

  /** Counts one more unless there are `most`; returns whether it did. */
  add(key: EndpointKey, most?: number): boolean {
    return this.#counts.add(this.#keyOf(key), most);
  }

  remove(key: EndpointKey): void {
    this.#counts.remove(this.#keyOf(key));
  }

  /** The endpoints may have changed: those that are gone take no memory. */
  trim(): void {
    this.#keys.clear();
  }

  #keyOf(key: EndpointKey): CountKey {
    return this.#keys.getOrInsertComputed(key, () => countKey(`${this.#servicePort} ${key}`));
  }
}

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
  /** When the last slow start ends. */
  #growsUntil = 0;

  /** `present` are no new endpoints: their age is unknown. */
  constructor({ weights = [], slowStartMs = 0 }: EdgeSettings, present: Iterable<EndpointKey>) {
    this.#weights = new Map(
      weights.map(({ address, port, weight }) => [
        port === undefined ? address : endpointKey(address, port),
        weight,
      ]),
    );
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
      if (this.#known.has(key)) this.#appear(key, now - age);
    }
  }

  /** Adopts the endpoints that exist now. An endpoint that returns starts slowly again. */
  update(present: Iterable<EndpointKey>, now: number): void {
    if (this.#slowStartMs === 0) return;
    const known = new Set(present);
    for (const key of known) if (!this.#known.has(key)) this.#appear(key, now);
    for (const key of this.#appearedAt.keys()) if (!known.has(key)) this.#appearedAt.delete(key);
    this.#known = known;
  }

  #appear(key: EndpointKey, at: number): void {
    this.#appearedAt.set(key, at);
    this.#growsUntil = Math.max(this.#growsUntil, at + this.#slowStartMs);
  }

  /** Whether an endpoint may be in its slow start. */
  isGrowing(now: number): boolean {
    return now < this.#growsUntil;
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

/** Makes the balancer of a setting. It has no endpoints yet. */
export function createBalancer(
  balance: EdgeSettings["balance"],
  { shares, load, start, random }: {
    /** `undefined` = all shares are equal. */
    readonly shares: EndpointShares | undefined;
    /** `undefined` = connections are not counted. */
    readonly load: EndpointLoad | undefined;
    /** The start position in the list, from 0 (included) to 1. */
    readonly start: number;
    /** From 0 (included) to 1. */
    readonly random: () => number;
  },
): Balancer {
  if (balance === "source-hash") return sourceHash(shares);
  if (balance === "random-two-choices" && load) return randomChoice(shares, load, random);
  if (load) return lowestRank(shares, load, start);
  return shares ? turnsByShare(shares, start) : rotation(start);
}

/** A rotation while all shares are equal, as its choice costs the same at any number of endpoints. */
function turnsByShare(shares: EndpointShares, start: number): Balancer {
  const [equal, unequal] = [rotation(start), lowestRank(shares, undefined, start)];
  let hasEqualWeights = true;
  return {
    replace(list) {
      hasEqualWeights = new Set(list.map((each) => shares.weightOf(each))).size < 2;
      equal.replace(list);
      unequal.replace(list);
    },
    next(request) {
      const isEqual = hasEqualWeights && !shares.isGrowing(request.now);
      return (isEqual ? equal : unequal).next(request);
    },
  };
}

/** Gives each endpoint its turn: the default. */
function rotation(start: number): Balancer {
  let endpoints: readonly Endpoint[] = [];
  let position = 0;
  return {
    replace(list) {
      if (list === endpoints) return;
      // Lists are sorted by key, so the rotation continues at the same endpoint or the one after it.
      const turn = endpoints[position]?.key;
      const at = turn === undefined
        ? Math.floor(start * list.length)
        : list.findIndex(({ key }) => key >= turn);
      endpoints = list;
      position = Math.max(0, at);
    },
    next({ exclude }) {
      const { length } = endpoints;
      for (let tried = 0; tried < length; tried++) {
        const endpoint = endpoints[position];
        position = position + 1 < length ? position + 1 : 0;
        if (endpoint && !exclude?.has(endpoint.key)) return endpoint;
      }
      return undefined;
    },
  };
}

/** Choices after which one is taken although other threads have just taken it as well. */
const MOST_CHOICES = 8;

/**
 * Chooses the endpoint that comes first: without a load, that whose turn comes again after one divided by
 * its share (earliest deadline first), which interleaves turns as smoothly as nginx's round robin; else
 * that with the fewest connections for its share. It looks at each endpoint: an order that is kept up to
 * date would not know the connections of other threads.
 */
function lowestRank(
  shares: EndpointShares | undefined,
  load: EndpointLoad | undefined,
  start: number,
): Balancer {
  interface Candidate {
    endpoint: Endpoint;
    /** The turn of the last choice, which decides between equals. */
    turn: number;
    /** When its turn comes again. */
    deadline: number;
  }
  let candidates: readonly Candidate[] = [];
  let turn = 0;
  /** The deadline of the last choice: a new endpoint joins there. */
  let reached = 0;
  const shareOf = (endpoint: Endpoint, now: number) => shares?.shareOf(endpoint, now) ?? 1;
  return {
    replace(endpoints) {
      const before = new Map(candidates.map((each) => [each.endpoint.key, each]));
      const { length } = endpoints;
      const first = Math.floor(start * length);
      candidates = endpoints.map((endpoint, position) => {
        const known = before.get(endpoint.key);
        if (known) return Object.assign(known, { endpoint });
        return {
          endpoint,
          turn: turn + 1 + (position - first + length) % length,
          deadline: reached + 1 / shareOf(endpoint, 0),
        };
      });
      turn += length;
    },
    next({ now, exclude }) {
      for (let choice = 1;; choice++) {
        let [best, least, seen]: [Candidate | undefined, number, number] = [undefined, Infinity, 0];
        for (const each of candidates) {
          if (exclude?.has(each.endpoint.key)) continue;
          const count = load?.of(each.endpoint.key) ?? 0;
          const rank = load ? (count + 1) / shareOf(each.endpoint, now) : each.deadline;
          if (best && (rank > least || (rank === least && each.turn > best.turn))) continue;
          [best, least, seen] = [each, rank, count];
        }
        if (best === undefined) return undefined;
        const isLast = choice === MOST_CHOICES;
        const isTaken = load?.add(best.endpoint.key, isLast ? Infinity : seen + 1) ?? true;
        if (!isTaken && !isLast) continue;
        reached = best.deadline;
        best.deadline += 1 / shareOf(best.endpoint, now);
        best.turn = ++turn;
        return best.endpoint;
      }
    },
  };
}

/** Draws for a second endpoint that differs from the first; with one endpoint there is none. */
const MOST_DRAWS = 3;

/** Draws two endpoints by weight and takes the one with fewer connections for its share. */
function randomChoice(
  shares: EndpointShares | undefined,
  load: EndpointLoad,
  random: () => number,
): Balancer {
  let all: readonly Endpoint[] = [];
  /** Sums of the weights up to each endpoint. */
  let sumsOfAll = new Float64Array();
  const sumsOf = (endpoints: readonly Endpoint[]) => {
    let sum = 0;
    return Float64Array.from(endpoints, (endpoint) => sum += shares?.weightOf(endpoint) ?? 1);
  };
  const draw = (endpoints: readonly Endpoint[], sums: Float64Array) => {
    const wanted = random() * (sums.at(-1) ?? 0);
    let [low, high] = [0, sums.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sums[middle]! > wanted) high = middle;
      else low = middle + 1;
    }
    return endpoints[low];
  };
  const loadOf = (endpoint: Endpoint, now: number) =>
    (load.of(endpoint.key) + 1) / (shares?.shareOf(endpoint, now) ?? 1);
  return {
    replace(list) {
      all = list;
      sumsOfAll = sumsOf(list);
    },
    next({ now, exclude }) {
      // Only after a failed attempt, so that a walk over all is rare.
      const endpoints = exclude ? all.filter(({ key }) => !exclude.has(key)) : all;
      const sums = exclude ? sumsOf(endpoints) : sumsOfAll;
      const one = draw(endpoints, sums);
      let two = draw(endpoints, sums);
      for (let tries = 0; tries < MOST_DRAWS && two === one; tries++) two = draw(endpoints, sums);
      if (one === undefined || two === undefined) return undefined;
      const chosen = loadOf(two, now) < loadOf(one, now) ? two : one;
      load.add(chosen.key);
      return chosen;
    },
  };
}

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
function sourceHash(shares: EndpointShares | undefined): Balancer {
  let endpoints: readonly Endpoint[] = [];
  let seeds = new Int32Array();
  let weights = new Float64Array();
  /** Index of the endpoint of each slot. */
  let winners: Int32Array | undefined;
  const winnerOf = (slot: number, exclude?: ReadonlySet<EndpointKey>): number => {
    let [winner, highest] = [UNKNOWN, -Infinity];
    for (let index = 0; index < seeds.length; index++) {
      // Never 0 or 1, of which the logarithm would be of no use.
      const part = ((mixHash(seeds[index]! ^ Math.imul(slot + 1, 0x9e3779b1)) >>> 0) + 0.5) /
        2 ** 32;
      const score = -weights[index]! / Math.log(part);
      if (score <= highest || exclude?.has(endpoints[index]!.key)) continue;
      [winner, highest] = [index, score];
    }
    return winner;
  };
  return {
    replace(list) {
      if (list === endpoints) return;
      endpoints = list;
      seeds = Int32Array.from(list, ({ key }) => hashText(key));
      weights = Float64Array.from(list, (endpoint) => shares?.weightOf(endpoint) ?? 1);
      if (list.length <= FEW_ENDPOINTS) winners = undefined;
      else winners = (winners ?? new Int32Array(SLOTS)).fill(UNKNOWN);
    },
    next({ client, exclude }) {
      const slot = hashText(client) & (SLOTS - 1);
      if (exclude) return endpoints[winnerOf(slot, exclude)];
      const known = winners?.[slot] ?? UNKNOWN;
      if (known !== UNKNOWN) return endpoints[known];
      const winner = winnerOf(slot);
      if (winners) winners[slot] = winner;
      return endpoints[winner];
    },
  };
}
