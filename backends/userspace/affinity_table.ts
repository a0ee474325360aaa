import { hashText } from "../../lib/net/text_hash.ts";
import type { EndpointKey } from "../../lib/proxy/endpoint.ts";

/**
 * Records that a client may have: of each such set, the client that was away for longest is forgotten.
 * Sets of 16 fill evenly: of 30,000 clients 0.02 % are forgotten, of 65,536 9 %.
 * Sets of 4 forget 3 % and 19 %.
 */
const WAYS = 16;
const SETS = 2 ** 12;
/** A record is 64 bits: a tag of the client, the endpoint, and the time of the last use. */
const BITS = { tag: 10n, endpoint: 27n, time: 27n };
const ENDPOINTS = 2 ** 27;
/** Milliseconds of a unit of time. Times repeat after 24.8 days; the longest affinity is one day. */
const UNIT_MS = 16;
const TIMES = 2 ** 27;
/** The most by which the clocks of two threads differ. */
const CLOCKS_MS = 60_000;
const NOTHING = 0n;
/** The tag is in the upper bits of the second half. */
const TAG_SHIFT = 22;

/** A record as it was found. */
interface AffinityRecord {
  readonly cell: number;
  readonly found: bigint;
  readonly tag: number;
  /** The endpoint; `undefined` = the client has none. */
  readonly endpoint: number | undefined;
  /** Milliseconds since the last use. */
  readonly age: number;
}

/** Memory for the clients of one ServicePort: 512 KB, which some hundred clients use all over. */
export const AFFINITY_BYTES: number = WAYS * SETS * BigUint64Array.BYTES_PER_ELEMENT;

/** The number by which records name an endpoint. */
export function endpointNumber(key: EndpointKey): number {
  return (hashText(key) & (ENDPOINTS - 1)) || 1;
}

/**
 * The endpoints of up to 65,536 clients, in memory that threads share. A client is known by a hash: two of
 * one hash have the same endpoint.
 */
export class AffinityTable {
  readonly #records: BigUint64Array;
  /** The same in halves: numbers, where a BigInt for each record would be garbage. */
  readonly #halves: Uint32Array;

  constructor(memory: ArrayBufferLike = new ArrayBuffer(AFFINITY_BYTES)) {
    this.#records = new BigUint64Array(memory);
    this.#halves = new Uint32Array(memory);
  }

  /** The record of a client, or the one that it is to have. */
  find(client: string, now: number, timeoutMs: number): AffinityRecord {
    const hash = hashText(client);
    const first = WAYS * (hash & (SETS - 1));
    const tag = (hash >>> 12) & 0x3ff;
    for (;;) {
      let [chosen, chosenLow, chosenHigh, longest] = [first, 0, 0, -1];
      for (let cell = first; cell < first + WAYS; cell++) {
        const [low, high] = [this.#halves[2 * cell]!, this.#halves[2 * cell + 1]!];
        const isKnown = (low | high) !== 0;
        const isClient = isKnown && high >>> TAG_SHIFT === tag;
        const age = isKnown ? ageOf(low & (TIMES - 1), now) : Infinity;
        if (!isClient && age <= longest) continue;
        [chosen, chosenLow, chosenHigh, longest] = [cell, low, high, age];
        if (isClient) break;
      }
      const record = this.#read(chosen, tag, now, timeoutMs);
      // Another thread may have written since it was chosen, even for another client.
      if (
        this.#halves[2 * chosen] === chosenLow && this.#halves[2 * chosen + 1] === chosenHigh
      ) return record;
    }
  }

  /** Only what is read at once belongs together. */
  #read(cell: number, tag: number, now: number, timeoutMs: number): AffinityRecord {
    const found = Atomics.load(this.#records, cell);
    const time = Number(found & (BigInt(TIMES) - 1n));
    const age = found === NOTHING ? Infinity : ageOf(time, now);
    const isClient = found !== NOTHING && Number(found >> (BITS.endpoint + BITS.time)) === tag;
    const endpoint = isClient && age < timeoutMs
      ? Number((found >> BITS.time) & (BigInt(ENDPOINTS) - 1n))
      : undefined;
    return { cell, found, tag, endpoint, age };
  }

  /** Records a use; returns whether no other thread has changed the record since it was found. */
  bind({ cell, found, tag }: AffinityRecord, endpoint: number, now: number): boolean {
    const record = BigInt(tag) << (BITS.endpoint + BITS.time) | BigInt(endpoint) << BITS.time |
      BigInt(timeOf(now));
    return Atomics.compareExchange(this.#records, cell, found, record) === found;
  }
}

/** The clock of another thread may be a little ahead. */
function ageOf(time: number, now: number): number {
  const age = UNIT_MS * ((timeOf(now) - time + TIMES) % TIMES);
  return age > UNIT_MS * TIMES - CLOCKS_MS ? 0 : age;
}

function timeOf(now: number): number {
  return Math.floor(now / UNIT_MS) % TIMES;
}
