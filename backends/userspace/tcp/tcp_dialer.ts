import type { TcpConnection } from "../../../lib/os/network.ts";
import type { Clock } from "../../../lib/os/clock.ts";
import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { EndpointPicker, VerdictName } from "../endpoint_picker.ts";
import type { EndpointLoad } from "../balancers.ts";
import { Abandoned, ConnectAttempt, type Engine } from "../engine.ts";
import { ExpiryQueue, type RecencyItem } from "../expiry_queue.ts";
import type { ServiceAddress } from "../listeners.ts";
import type { PolicyGate } from "../policy_gate.ts";
import {
  isOutOfPorts,
  isOutOfSockets,
  isOwnShortage,
  systemErrorOf,
} from "../../../lib/os/socket_errors.ts";

interface DialRequest {
  readonly verdict: VerdictName;
  /** Address of the client, without its port. */
  readonly client: string;
  /** The frontend at which it arrived. */
  readonly at: ServiceAddress;
  /** Paths of Unix sockets that replace endpoints. */
  readonly sockets?: ReadonlyMap<EndpointKey, string> | undefined;
  /** Called after each attempt that says something about its endpoint; `undefined` = connected. */
  readonly observe?: ((endpoint: EndpointKey, failure?: string) => void) | undefined;
}

/** A connection to an endpoint. */
interface DialledConnection {
  readonly kind: "connected";
  readonly connection: TcpConnection;
  /** Counts it, until it has ended. */
  readonly load: EndpointLoad | undefined;
}

/** The reason why no endpoint could be reached. */
export interface DialFailure {
  /** `out-of-sockets`, `out-of-ports`: no endpoint is to blame. `denied`: by policies, and no other one is tried. */
  readonly kind: "no-endpoint" | "unreachable" | "out-of-sockets" | "out-of-ports" | "denied";
  /** Endpoints tried, and how each attempt ended, e.g. `10.0.0.1:80 (ECONNREFUSED)`. */
  readonly attempts: readonly string[];
}

interface TcpDialerContext {
  readonly clock: Clock;
  readonly engine: Pick<Engine, "connect">;
  readonly options: { readonly dialTimeoutsMs: readonly number[] };
  readonly counters: { dialFailures: number; dialTimeouts: number };
  /** Absent = everything may be dialled. */
  readonly policies?: Pick<PolicyGate, "denialOf" | "suspicionOf"> | undefined;
}

/** Interval of checks whether an overdue attempt may continue. */
const LATE_CHECK_MS = 50;
/** Longest time that an attempt is given because the endpoint takes others. */
const LATEST_MS = 2000;

class Attempt extends ConnectAttempt implements RecencyItem<Attempt> {
  older: Attempt | undefined;
  newer: Attempt | undefined;
  usedAt = 0;

  constructor(
    readonly endpoint: EndpointKey,
    readonly startedAt: number,
    public queue: ExpiryQueue<Attempt>,
  ) {
    super();
  }
}

/**
 * Connects to endpoints, each attempt with a longer time-out and, if possible, another endpoint. An
 * endpoint that refused is not retried; one that timed out is, if there is no other. One that policies
 * deny is not replaced: rules of the kernel also judge a packet after its endpoint was chosen.
 */
export class TcpDialer {
  readonly #context: TcpDialerContext;
  readonly #queues: readonly ExpiryQueue<Attempt>[];
  readonly #overdue: ExpiryQueue<Attempt>;
  readonly #late: ExpiryQueue<Attempt>;
  /** The last successful connection to each endpoint; forgotten when no dial is in progress. */
  readonly #connectedAt = new Map<EndpointKey, number>();
  #pending = 0;
  #closed = false;

  constructor(context: TcpDialerContext) {
    const { clock, options } = context;
    this.#context = context;
    // After a stall of the event loop, the timer of an attempt fires before the connection is reported
    // that the kernel has made meanwhile. So attempts that are overdue get one more turn, in which what
    // has arrived is delivered.
    const endUnlessAlive = (attempt: Attempt) => this.#endUnlessAlive(attempt);
    this.#overdue = new ExpiryQueue(clock, 0, endUnlessAlive);
    this.#late = new ExpiryQueue(clock, LATE_CHECK_MS, endUnlessAlive);
    this.#queues = options.dialTimeoutsMs.map((ttlMs) =>
      new ExpiryQueue<Attempt>(clock, ttlMs, (attempt) => this.#postpone(attempt))
    );
  }

  /** The number of attempts in progress. */
  get pending(): number {
    return this.#pending;
  }

  /** Connects a client to an endpoint of its verdict, which it loads until it ends. Does not reject. */
  async dial(
    picker: EndpointPicker,
    request: DialRequest,
  ): Promise<DialledConnection | DialFailure> {
    const attempts: string[] = [];
    let failed: Set<EndpointKey> | undefined;
    let refused: Set<EndpointKey> | undefined;
    let lacksPorts = true;
    for (const queue of this.#queues) {
      let endpoint = this.#pick(picker, request, failed);
      if (!endpoint && refused) endpoint = this.#pick(picker, request, refused);
      if (!endpoint) break;
      const { load } = picker;
      const denial = this.#context.policies?.denialOf({ ...request, protocol: "TCP", endpoint });
      if (this.#closed || denial !== undefined) load?.remove(endpoint.key);
      if (this.#closed) break;
      if (denial !== undefined) return denied(attempts, `${endpoint.key} (${denial})`);
      try {
        const path = request.sockets?.get(endpoint.key);
        const connection = await this.#connect(endpoint, { queue, path });
        request.observe?.(endpoint.key);
        return { kind: "connected", connection, load };
      } catch (error) {
        load?.remove(endpoint.key);
        this.#context.counters.dialFailures++;
        const timedOut = error instanceof Abandoned;
        if (timedOut) this.#context.counters.dialTimeouts++;
        const failure = timedOut ? "timeout" : systemErrorOf(error) ?? String(error);
        const suspicion = isOwnShortage(error) || request.sockets?.has(endpoint.key)
          ? undefined
          : this.#context.policies?.suspicionOf({ protocol: "TCP", endpoint });
        attempts.push(`${endpoint.key} (${failure}${suspicion ? `; ${suspicion}` : ""})`);
        if (isOutOfSockets(error)) return { kind: "out-of-sockets", attempts };
        lacksPorts &&= isOutOfPorts(error);
        if (!this.#closed && !isOwnShortage(error)) request.observe?.(endpoint.key, failure);
        (failed ??= new Set()).add(endpoint.key);
        refused ??= new Set();
        if (!timedOut) refused.add(endpoint.key);
      }
    }
    if (attempts.length === 0) return { kind: "no-endpoint", attempts };
    return { kind: lacksPorts ? "out-of-ports" : "unreachable", attempts };
  }

  /** Aborts all attempts, and starts no others. */
  close(): void {
    this.#closed = true;
    for (const queue of [...this.#queues, this.#overdue, this.#late]) {
      queue.close();
      for (const attempt of queue) attempt.abandon();
    }
  }

  #pick(
    picker: EndpointPicker,
    { verdict, client }: DialRequest,
    exclude: ReadonlySet<EndpointKey> | undefined,
  ): Endpoint | undefined {
    const now = this.#context.clock.now();
    return picker.pick(exclude ? { verdict, client, now, exclude } : { verdict, client, now });
  }

  async #connect(
    { key, address, port }: Endpoint,
    { queue, path }: { readonly queue: ExpiryQueue<Attempt>; readonly path: string | undefined },
  ): Promise<TcpConnection> {
    const { clock, engine } = this.#context;
    const startedAt = clock.now();
    const attempt = new Attempt(key, startedAt, queue);
    queue.add(attempt, startedAt);
    this.#pending++;
    try {
      const target = { hostname: address, port };
      const connection = await engine.connect(target, attempt, path);
      this.#connectedAt.set(key, clock.now());
      return connection;
    } finally {
      if (!attempt.isAbandoned) attempt.queue.delete(attempt);
      if (--this.#pending === 0) this.#connectedAt.clear();
    }
  }

  /**
   * An endpoint that accepted another connection since this attempt began is not hanging: this
   * process is late, in a burst of thousands of clients. Ending the attempt would dial each of them
   * four times and then refuse them, although the kernel has connected them all.
   */
  #endUnlessAlive(attempt: Attempt): void {
    const now = this.#context.clock.now();
    const connectedAt = this.#connectedAt.get(attempt.endpoint) ?? -1;
    if (connectedAt < attempt.startedAt || now - attempt.startedAt > LATEST_MS) {
      return attempt.abandon();
    }
    attempt.queue = this.#late;
    this.#late.add(attempt, now);
  }

  #postpone(attempt: Attempt): void {
    attempt.queue = this.#overdue;
    this.#overdue.add(attempt, this.#context.clock.now());
  }
}

function denied(attempts: readonly string[], last: string): DialFailure {
  return { kind: "denied", attempts: [...attempts, last] };
}
