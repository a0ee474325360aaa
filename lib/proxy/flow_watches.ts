/**
 * Who wants to know what becomes of a connection or flow that a forwarder of our own takes. Pure but
 * for its own state; time is passed in.
 *
 * A watch is there as long as somebody asks for it again and again: nothing has to be taken away when
 * whoever asks is killed, and where nobody asks, nothing is kept.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { EndpointKey } from "./endpoint.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** What is watched for. */
export interface FlowQuery {
  readonly protocol: Protocol;
  readonly to: IpAddress;
  readonly port: Port;
  /** Without it, anybody's. */
  readonly from?: IpAddress;
  readonly sourcePort?: number;
}

/** What became of a connection or flow. */
export interface WatchedFlow {
  readonly protocol: Protocol;
  readonly client: IpAddress;
  readonly clientPort: number;
  /** Where the client sent it. */
  readonly to: IpAddress;
  readonly port: Port;
  readonly service: ServicePortKey;
  /** Where it was sent; absent where it was refused. */
  readonly endpoint?: EndpointKey;
  /** The address that the endpoint sees. */
  readonly seenAs?: IpAddress;
  /** Why it was refused, or attempts that had failed before. */
  readonly detail?: string;
}

/** Watches at a time. */
export const MOST_WATCHES = 8;
/** A watch that nobody asked for again is over. */
export const WATCH_TTL_MS = 10_000;
/** The first ones are kept. */
const MOST_FLOWS = 16;

interface Watch {
  readonly query: FlowQuery;
  readonly flows: WatchedFlow[];
  askedAt: number;
}

/** The watches of one forwarder. */
export class FlowWatches {
  readonly #watches = new Map<string, Watch>();

  /** Whether nobody watches: then nothing needs to be told. */
  get isIdle(): boolean {
    return this.#watches.size === 0;
  }

  /**
   * What was seen for a watch so far. The first time that it is asked for, it begins. Throws a
   * RangeError where there are too many.
   */
  ask(
    id: string,
    { query, now }: { readonly query: FlowQuery; readonly now: number },
  ): readonly WatchedFlow[] {
    this.#forget(now);
    const known = this.#watches.get(id);
    if (known) {
      known.askedAt = now;
      return known.flows;
    }
    if (this.#watches.size >= MOST_WATCHES) {
      throw new RangeError(`${MOST_WATCHES} packets are watched for already; try again later`);
    }
    this.#watches.set(id, { query, flows: [], askedAt: now });
    return [];
  }

  /** Tells the watches of a connection or flow. */
  report(flow: WatchedFlow, now: number): void {
    this.#forget(now);
    for (const { query, flows } of this.#watches.values()) {
      if (flows.length < MOST_FLOWS && isLike(flow, query)) flows.push(flow);
    }
  }

  #forget(now: number): void {
    for (const [id, { askedAt }] of this.#watches) {
      if (now - askedAt > WATCH_TTL_MS) this.#watches.delete(id);
    }
  }
}

function isLike(flow: WatchedFlow, query: FlowQuery): boolean {
  return flow.protocol === query.protocol && flow.to === query.to && flow.port === query.port &&
    (query.from === undefined || flow.client === query.from) &&
    (query.sourcePort === undefined || flow.clientPort === query.sourcePort);
}
