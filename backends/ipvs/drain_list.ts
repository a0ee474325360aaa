/**
 * Real servers of weight 0 whose connections may still end. Pure except for its own state; the caller
 * passes the time.
 *
 * After a restart, the real servers of weight 0 in the kernel are the list, with a time of its own.
 *
 * @module
 */
import type { SeenServer } from "./proc_ip_vs.ts";
import { addressOfServer, type RealServerKey, type ServerKey } from "./virtual_server.ts";

/** Whether connections of a virtual server have an end worth waiting for. */
export function isDrained(server: ServerKey): boolean {
  // A client of UDP has to be sent elsewhere at once, and so it is with SCTP in kube-proxy.
  return addressOfServer(server)?.protocol === "TCP";
}

/** The draining real servers. */
export class DrainList {
  readonly #timeoutMs: number;
  /** By virtual server, so that removing one takes constant time. */
  readonly #entries = new Map<ServerKey, Map<RealServerKey, number>>();
  #size = 0;

  /** `timeoutMs`: maximum time for connections to end; 0 = unlimited. */
  constructor(timeoutMs: number) {
    this.#timeoutMs = timeoutMs;
  }

  get size(): number {
    return this.#size;
  }

  /** Whether a real server is draining. */
  has(server: ServerKey, real: RealServerKey): boolean {
    return this.#entries.get(server)?.has(real) === true;
  }

  /** Adds a real server whose weight became 0. One that is already draining keeps its start. */
  add(server: ServerKey, real: RealServerKey, sinceMs: number): void {
    if (this.has(server, real)) return;
    const reals = this.#entries.get(server) ?? new Map<RealServerKey, number>();
    this.#entries.set(server, reals.set(real, sinceMs));
    this.#size++;
  }

  /** A real server is wanted again, or gone. Without one: the whole virtual server is. */
  remove(server: ServerKey, real?: RealServerKey): void {
    const reals = this.#entries.get(server);
    if (reals === undefined) return;
    const before = reals.size;
    if (real === undefined) reals.clear();
    else reals.delete(real);
    this.#size -= before - reals.size;
    if (reals.size === 0) this.#entries.delete(server);
  }

  /**
   * Returns the drained servers, based on the kernel's current state. Servers that another program
   * removed, or gave a weight, leave the list.
   */
  due(
    seen: readonly SeenServer[],
    nowMs: number,
  ): readonly { readonly server: ServerKey; readonly real: RealServerKey }[] {
    if (this.#size === 0) return [];
    const servers = new Map(seen.map((server) => [server.key, server]));
    const entries = [...this.#entries].flatMap(([server, reals]) =>
      [...reals].map(([real, sinceMs]) => ({ server, real, sinceMs }))
    );
    return entries.filter(({ server, real, sinceMs }) => {
      const found = servers.get(server)?.reals.find((each) => each.key === real);
      if (found?.weight === 0) {
        const isOver = this.#timeoutMs > 0 && nowMs - sinceMs >= this.#timeoutMs;
        return found.active + found.inactive === 0 || isOver;
      }
      this.remove(server, real);
      return false;
    });
  }
}
