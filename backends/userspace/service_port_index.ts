/**
 * ServicePorts by something that several of them may have. Pure but for its own state.
 *
 * @module
 */
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";

/** The ServicePorts of each key. */
export class ServicePortIndex<Key extends string> {
  // Almost always one each: a Set for each of 10,000 sockets would cost megabytes.
  readonly #entries = new Map<Key, ServicePortKey | Set<ServicePortKey>>();

  add(key: Key, servicePort: ServicePortKey): void {
    const entry = this.#entries.get(key);
    if (entry === undefined || entry === servicePort) this.#entries.set(key, servicePort);
    else if (typeof entry === "string") this.#entries.set(key, new Set([entry, servicePort]));
    else entry.add(servicePort);
  }

  delete(key: Key, servicePort: ServicePortKey): void {
    const entry = this.#entries.get(key);
    if (entry === servicePort) this.#entries.delete(key);
    if (!(entry instanceof Set)) return;
    entry.delete(servicePort);
    const [only] = entry;
    if (entry.size === 1 && only !== undefined) this.#entries.set(key, only);
  }

  has(key: Key): boolean {
    return this.#entries.has(key);
  }

  /** The ServicePorts of a key, in no order. */
  get(key: Key): readonly ServicePortKey[] {
    const entry = this.#entries.get(key);
    return entry === undefined ? [] : entry instanceof Set ? [...entry] : [entry];
  }
}
