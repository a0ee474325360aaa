/**
 * Real servers that are on their way out: of weight 0, until their connections have ended. Pure but for
 * its own state; the time is told.
 *
 * The kernel holds what is needed to go on after a restart: a real server of weight 0 is one. Since when
 * it is, the record of virtual servers tells.
 *
 * @module
 */
import type { IpvsOperation } from "./ipvs_operation.ts";
import type { SeenServer } from "./proc_ip_vs.ts";
import { addressOfServer, type RealServerKey, type ServerKey } from "./virtual_server.ts";

/** A real server on its way out. */
export interface DrainingServer {
  readonly server: ServerKey;
  readonly real: RealServerKey;
  /** When it began, or was found, milliseconds. */
  readonly sinceMs: number;
}

/** Settings of the list. */
interface DrainOptions {
  /** Longest time for connections to end, milliseconds; 0 = as long as they like. */
  readonly timeoutMs: number;
  /** Told when one has come or gone. */
  readonly onChange?: () => void;
}

/** Whether connections of a virtual server have an end that is worth waiting for. */
export function isDrained(server: ServerKey): boolean {
  // A client of UDP has to be sent elsewhere at once, and so it is with SCTP in kube-proxy.
  return addressOfServer(server)?.protocol === "TCP";
}

/** What drains now. */
export class DrainList {
  readonly #options: DrainOptions;
  /** By virtual server: one that goes takes its own along, however many others drain. */
  readonly #entries = new Map<ServerKey, Map<RealServerKey, number>>();
  #size = 0;

  constructor(options: DrainOptions) {
    this.#options = options;
  }

  /** How many there are. */
  get size(): number {
    return this.#size;
  }

  /** All of them. */
  get entries(): readonly DrainingServer[] {
    return [...this.#entries].flatMap(([server, reals]) =>
      [...reals].map(([real, sinceMs]) => ({ server, real, sinceMs }))
    );
  }

  /** Whether a real server drains. */
  has(server: ServerKey, real: RealServerKey): boolean {
    return this.#entries.get(server)?.has(real) === true;
  }

  /** A real server has got weight 0. One that drains already goes on as it did. */
  add(
    server: ServerKey,
    { real, sinceMs }: { readonly real: RealServerKey; readonly sinceMs: number },
  ): void {
    if (this.has(server, real)) return;
    const reals = this.#entries.get(server) ?? new Map<RealServerKey, number>();
    this.#entries.set(server, reals.set(real, sinceMs));
    this.#size++;
    this.#options.onChange?.();
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
    if (reals.size < before) this.#options.onChange?.();
  }

  /**
   * The operations that take away what has drained, by what the kernel holds now. What another program has
   * taken away, or given a weight, leaves the list.
   */
  due(seen: readonly SeenServer[], nowMs: number): readonly IpvsOperation[] {
    if (this.#size === 0) return [];
    const servers = new Map(seen.map((server) => [server.key, server]));
    const operations: IpvsOperation[] = [];
    for (const { server, real, sinceMs } of this.entries) {
      const found = servers.get(server)?.reals.find((each) => each.key === real);
      if (found === undefined || found.weight !== 0) {
        this.remove(server, real);
        continue;
      }
      if (found.active + found.inactive > 0 && !this.#isOver(sinceMs, nowMs)) continue;
      operations.push({ kind: "deleteReal", server, key: real });
    }
    return operations;
  }

  #isOver(sinceMs: number, nowMs: number): boolean {
    const { timeoutMs } = this.#options;
    return timeoutMs > 0 && nowMs - sinceMs >= timeoutMs;
  }
}
