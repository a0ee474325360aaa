import type { Clock } from "../../../lib/os/clock.ts";
import type { Endpoint, EndpointKey } from "../../../lib/proxy/endpoint.ts";
import type { EndpointPicker, VerdictName } from "../endpoint_picker.ts";
import type { EndpointLoad } from "../balancers.ts";
import { Abandoned, ConnectAttempt, type Engine, type EngineConnection } from "../engine.ts";
import { ExpiryQueue, type RecencyItem } from "../expiry_queue.ts";
import type { ServiceAddress } from "../listeners.ts";
import type { PolicyGate } from "../policy_gate.ts";
import {
  isOutOfPorts,
  isOutOfSockets,
  isOwnShortage,
  systemErrorOf,
} from "../../../lib/os/socket_errors.ts";

/** What is to be connected. It stays as it is until the outcome is known. */
export interface DialRequest {
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
export interface DialledConnection {
  readonly kind: "connected";
  readonly connection: EngineConnection;
  readonly endpoint: Endpoint;
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

/** Endpoints of which the last connection is remembered while none is dialled. */
const MOST_CONNECTED = 64;

/** The attempts for one client, of which one is made at a time. */
class Dial extends ConnectAttempt implements RecencyItem<Dial> {
  older: Dial | undefined;
  newer: Dial | undefined;
  usedAt = 0;
  /** Attempts so far, and how those that failed have ended. */
  made = 0;
  attempts: readonly string[] = [];
  failed: Set<EndpointKey> | undefined;
  refused: Set<EndpointKey> | undefined;
  lacksPorts = true;
  /** Of the attempt that is made now. */
  endpoint: Endpoint | undefined;
  load: EndpointLoad | undefined;
  startedAt = 0;
  queue: ExpiryQueue<Dial> | undefined;

  constructor(
    readonly dialer: TcpDialer,
    readonly picker: EndpointPicker,
    readonly request: DialRequest,
    readonly done: (outcome: DialledConnection | DialFailure) => void,
  ) {
    super();
  }

  override onConnected(connection: EngineConnection): void {
    this.dialer.onConnected(this, connection);
  }

  override onFailed(error: unknown): void {
    this.dialer.onFailed(this, error);
  }
}

/**
 * Connects to endpoints, each attempt with a longer time-out and, if possible, another endpoint. An
 * endpoint that refused is not retried; one that timed out is, if there is no other. One that policies
 * deny is not replaced: rules of the kernel also judge a packet after its endpoint was chosen.
 */
export class TcpDialer {
  readonly #context: TcpDialerContext;
  readonly #queues: readonly ExpiryQueue<Dial>[];
  readonly #overdue: ExpiryQueue<Dial>;
  readonly #late: ExpiryQueue<Dial>;
  /** The last successful connection to each endpoint. */
  readonly #connectedAt = new Map<EndpointKey, number>();
  #pending = 0;
  #closed = false;

  constructor(context: TcpDialerContext) {
    const { clock, options } = context;
    this.#context = context;
    // After a stall of the event loop, the timer of an attempt fires before the connection is reported
    // that the kernel has made meanwhile. So attempts that are overdue get one more turn, in which what
    // has arrived is delivered.
    const endUnlessAlive = (dial: Dial) => this.#endUnlessAlive(dial);
    this.#overdue = new ExpiryQueue(clock, 0, endUnlessAlive);
    this.#late = new ExpiryQueue(clock, LATE_CHECK_MS, endUnlessAlive);
    this.#queues = options.dialTimeoutsMs.map((ttlMs) =>
      new ExpiryQueue<Dial>(clock, ttlMs, (dial) => this.#postpone(dial))
    );
  }

  /** The number of attempts in progress. */
  get pending(): number {
    return this.#pending;
  }

  /**
   * Connects a client to an endpoint of its verdict, which it loads until it ends. Calls `done` once, perhaps
   * at once.
   */
  dial(
    picker: EndpointPicker,
    request: DialRequest,
    done: (outcome: DialledConnection | DialFailure) => void,
  ): void {
    this.#next(new Dial(this, picker, request, done));
  }

  /** An attempt has succeeded. */
  onConnected(dial: Dial, connection: EngineConnection): void {
    const { load, request } = dial;
    const endpoint = dial.endpoint!;
    this.#connectedAt.set(endpoint.key, this.#context.clock.now());
    this.#leave(dial);
    request.observe?.(endpoint.key);
    dial.done({ kind: "connected", connection, endpoint, load });
  }

  /** An attempt has failed. */
  onFailed(dial: Dial, error: unknown): void {
    const { request, load } = dial;
    const endpoint = dial.endpoint!;
    this.#leave(dial);
    load?.remove(endpoint.key);
    this.#context.counters.dialFailures++;
    const timedOut = error instanceof Abandoned;
    if (timedOut) this.#context.counters.dialTimeouts++;
    const failure = timedOut ? "timeout" : systemErrorOf(error) ?? String(error);
    const suspicion = isOwnShortage(error) || request.sockets?.has(endpoint.key)
      ? undefined
      : this.#context.policies?.suspicionOf({ protocol: "TCP", endpoint });
    const attempt = `${endpoint.key} (${failure}${suspicion ? `; ${suspicion}` : ""})`;
    const attempts = dial.attempts = [...dial.attempts, attempt];
    if (isOutOfSockets(error)) return dial.done({ kind: "out-of-sockets", attempts });
    dial.lacksPorts &&= isOutOfPorts(error);
    if (!this.#closed && !isOwnShortage(error)) request.observe?.(endpoint.key, failure);
    (dial.failed ??= new Set()).add(endpoint.key);
    dial.refused ??= new Set();
    if (!timedOut) dial.refused.add(endpoint.key);
    this.#next(dial);
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

  #next(dial: Dial): void {
    const { picker, request, failed, refused } = dial;
    const { client, at } = request;
    const queue = this.#queues[dial.made];
    let endpoint = queue && this.#pick(picker, request, failed);
    if (queue && !endpoint && refused) endpoint = this.#pick(picker, request, refused);
    if (queue === undefined || endpoint === undefined) return this.#giveUp(dial);
    const { load } = picker;
    const denial = this.#context.policies?.denialOf({ protocol: "TCP", client, at, endpoint });
    if (this.#closed || denial !== undefined) load?.remove(endpoint.key);
    if (this.#closed) return this.#giveUp(dial);
    if (denial !== undefined) {
      const attempts = [...dial.attempts, `${endpoint.key} (${denial})`];
      return dial.done({ kind: "denied", attempts });
    }
    const { clock, engine } = this.#context;
    dial.made++;
    dial.endpoint = endpoint;
    dial.load = load;
    dial.isAbandoned = false;
    dial.startedAt = clock.now();
    dial.queue = queue;
    queue.add(dial, dial.startedAt);
    this.#pending++;
    const path = request.sockets?.get(endpoint.key);
    engine.connect({ hostname: endpoint.address, port: endpoint.port }, dial, path);
  }

  #giveUp({ attempts, lacksPorts, done }: Dial): void {
    if (attempts.length === 0) return done({ kind: "no-endpoint", attempts });
    done({ kind: lacksPorts ? "out-of-ports" : "unreachable", attempts });
  }

  #leave(dial: Dial): void {
    if (!dial.isAbandoned) dial.queue?.delete(dial);
    this.#pending--;
    // Earlier ones say nothing any more. Clearing a Map makes another one.
    if (this.#pending === 0 && this.#connectedAt.size > MOST_CONNECTED) this.#connectedAt.clear();
  }

  /**
   * An endpoint that accepted another connection since this attempt began is not hanging: this
   * process is late, in a burst of thousands of clients. Ending the attempt would dial each of them
   * four times and then refuse them, although the kernel has connected them all.
   */
  #endUnlessAlive(dial: Dial): void {
    const now = this.#context.clock.now();
    const connectedAt = this.#connectedAt.get(dial.endpoint!.key) ?? -1;
    if (connectedAt < dial.startedAt || now - dial.startedAt > LATEST_MS) {
      return dial.abandon();
    }
    dial.queue = this.#late;
    this.#late.add(dial, now);
  }

  #postpone(dial: Dial): void {
    dial.queue = this.#overdue;
    this.#overdue.add(dial, this.#context.clock.now());
  }
}
