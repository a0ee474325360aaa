import type { EndpointKey } from "../../lib/proxy/endpoint.ts";
import { type RecencyItem, RecencyList } from "./recency_list.ts";

interface AffinityRecord extends RecencyItem<AffinityRecord> {
  readonly client: string;
  endpoint: EndpointKey;
}

/**
 * Maximum number of expired records that each {@linkcode AffinityTable.bind} removes: more than it
 * adds.
 */
const PURGED_PER_BIND = 4;

/** A bounded table; when it is full, the client that was away for longest is forgotten. */
export class AffinityTable {
  readonly #maxClients: number;
  readonly #records = new Map<string, AffinityRecord>();
  readonly #recency = new RecencyList<AffinityRecord>();

  constructor(maxClients: number) {
    this.#maxClients = maxClients;
  }

  /** Clients that are remembered. */
  get size(): number {
    return this.#recency.size;
  }

  /** The endpoint of a client that has come after `since`. */
  find(client: string, since: number): EndpointKey | undefined {
    const record = this.#records.get(client);
    return record && record.usedAt > since ? record.endpoint : undefined;
  }

  /** Returns the record of a client that was seen after `since`. */
  entry(
    client: string,
    since: number,
  ): { readonly endpoint: EndpointKey; readonly usedAt: number } | undefined {
    const record = this.#records.get(client);
    return record && record.usedAt > since ? record : undefined;
  }

  /**
   * Records the endpoint of a client at `now`. Forgets only some of the expired records: a sweep
   * over all 65,536 would take longer than 10 ms.
   */
  bind(
    client: string,
    endpoint: EndpointKey,
    { now, since }: { now: number; since: number },
  ): void {
    const record = this.#records.get(client);
    if (record) {
      record.endpoint = endpoint;
      this.#recency.touch(record, now);
    } else {
      const added = { client, endpoint, older: undefined, newer: undefined, usedAt: now };
      this.#records.set(client, added);
      this.#recency.add(added, now);
    }
    this.#purge(since);
  }

  #purge(since: number): void {
    for (let count = 0; count < PURGED_PER_BIND; count++) {
      const { oldest, size } = this.#recency;
      if (!oldest || (oldest.usedAt > since && size <= this.#maxClients)) return;
      this.#recency.delete(oldest);
      this.#records.delete(oldest.client);
    }
  }
}
