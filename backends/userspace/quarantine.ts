import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";

/** ServicePorts, and addresses of them, that are in quarantine. */
export class Quarantine {
  readonly #entries = new Map<ServicePortKey, Map<string | undefined, string>>();

  /** `address` is `undefined` when the whole ServicePort is concerned. */
  add({ key, address, reason }: Quarantined): void {
    let addresses = this.#entries.get(key);
    if (!addresses) this.#entries.set(key, addresses = new Map());
    addresses.set(address, reason);
  }

  /** Lifts the quarantine of one address, or of the whole ServicePort with all its addresses. */
  delete(key: ServicePortKey, address?: string): void {
    const addresses = this.#entries.get(key);
    if (!addresses) return;
    addresses.delete(address);
    if (address === undefined || addresses.size === 0) this.#entries.delete(key);
  }

  has(key: ServicePortKey, address?: string): boolean {
    return this.#entries.get(key)?.has(address) ?? false;
  }

  /** The entries, grouped by ServicePort. */
  *[Symbol.iterator](): IterableIterator<Quarantined> {
    for (const [key, addresses] of this.#entries) {
      for (const [address, reason] of addresses) {
        yield address === undefined ? { key, reason } : { key, address, reason };
      }
    }
  }
}
