/**
 * Kills workers of a relay while clients use it, and judges which of their losses that explains.
 *
 * @module
 */
import type { SoakCounts } from "./soak_counts.ts";

/** A connection of a client. */
export interface SoakConnection {
  /** Sent with each request. */
  readonly id: string;
  /** By `performance.now()`. */
  readonly startedAt: number;
}

interface Kill {
  /** The number, from 1, of the worker. */
  readonly worker: number;
  readonly owners: Uint8Array;
  readonly until: number;
}

/** Bytes at the start of a request by which a server knows the connection of the client. */
export const ID_BYTES = 16;
/** Between kills, at random. */
const PAUSE_MS = { least: 20_000, most: 60_000 };
/** Time after the end of a worker in which clients notice it. */
const WINDOW_MS = 2000;
/** Time after the end of a worker in which the kernel closes its sockets. */
const CLOSE_MS = 200;
const PORTS = 65_536;

/** The kills of a soak. */
export class WorkerKills {
  /** The port towards the server, by the connection. */
  readonly #ports = new Map<string, number>();
  readonly #counts: SoakCounts;
  /** All connections of the kill's worker are known by `owners`. */
  #last: Kill | undefined;
  /** A kill in progress. */
  #killing: number | undefined;

  constructor(counts: SoakCounts) {
    this.#counts = counts;
  }

  /** Ends each worker in turn, at random times, until the signal. */
  async run(path: string, { workers, random, signal }: {
    readonly workers: number;
    readonly random: () => number;
    readonly signal: AbortSignal;
  }): Promise<void> {
    for (let next = 0; !signal.aborted; next = (next + 1) % workers) {
      await sleep(PAUSE_MS.least + random() * (PAUSE_MS.most - PAUSE_MS.least), signal);
      if (signal.aborted) return;
      this.#killing = next + 1;
      const owners = await kill(path, next);
      this.#last = { worker: next + 1, owners, until: performance.now() };
      this.#killing = undefined;
      this.#counts.kills++;
    }
  }

  /** A server got a request of the connection. */
  observe(request: Uint8Array, port: number): void {
    this.#ports.set(request.subarray(0, ID_BYTES).toHex(), port);
  }

  /** The client has ended the connection. */
  forget({ id }: SoakConnection): void {
    this.#ports.delete(id);
  }

  /** Counts a lost request. Returns whether no kill explains it. */
  async lose({ id, startedAt }: SoakConnection): Promise<boolean> {
    const lostAt = performance.now();
    // A client may notice before the answer to the kill is there.
    while (this.#killing !== undefined) await sleep(1);
    const { worker, owners, until } = this.#last ?? {};
    const port = this.#ports.get(id);
    const isNear = until !== undefined && lostAt < until + WINDOW_MS;
    if (isNear && port !== undefined && owners?.[port] === worker) this.#counts.died++;
    else if (isNear && port === undefined && startedAt < until + CLOSE_MS) this.#counts.unserved++;
    else {
      this.#counts.lost++;
      return true;
    }
    return false;
  }
}

/** Resolves to the number of the worker that has each port. */
async function kill(path: string, index: number): Promise<Uint8Array> {
  using connection = await Deno.connect({ transport: "unix", path });
  await connection.write(Uint8Array.of(index));
  const owners = new Uint8Array(PORTS);
  for (let filled = 0; filled < PORTS;) {
    const count = await connection.read(owners.subarray(filled));
    if (count === null) throw new Error(`Cannot kill worker ${index + 1}: no answer`);
    filled += count;
  }
  return owners;
}

/** Resolves early when the signal is aborted. */
function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}
