import type { EndpointKey } from "../../../lib/proxy/endpoint.ts";

/** Open connections and flows of each endpoint of a ServicePort, including attempts to connect. */
export class EndpointLoad {
  readonly #open = new Map<EndpointKey, number>();
  readonly #watchers: ((key: EndpointKey) => void)[] = [];

  of(key: EndpointKey): number {
    return this.#open.get(key) ?? 0;
  }

  add(key: EndpointKey): void {
    this.#open.set(key, this.of(key) + 1);
    for (const watcher of this.#watchers) watcher(key);
  }

  remove(key: EndpointKey): void {
    const left = this.of(key) - 1;
    if (left > 0) this.#open.set(key, left);
    else this.#open.delete(key);
    for (const watcher of this.#watchers) watcher(key);
  }

  /** Calls `watcher` after each change. */
  watch(watcher: (key: EndpointKey) => void): void {
    this.#watchers.push(watcher);
  }

  /** Forgets all watchers; the counts stay. */
  unwatch(): void {
    this.#watchers.length = 0;
  }
}
