import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { type CountKey, countKey, type SharedCounts } from "../shared_counts.ts";

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
