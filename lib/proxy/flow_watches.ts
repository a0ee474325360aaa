/**
 * Requests to report connections or flows that a forwarder of kube-relay accepts. No I/O; the
 * caller passes the time.
 *
 * A watch exists only while a caller keeps asking for it. It expires if the caller is killed, so no
 * cleanup is needed.
 *
 * @module
 */
import type { IpAddress } from "../net/ip_address.ts";
import type { Port, Protocol } from "../net/port.ts";
import type { EndpointKey } from "./endpoint.ts";
import type { ServicePortKey } from "./service_port_name.ts";

/** The flows that a watch reports. */
export interface FlowQuery {
  readonly protocol: Protocol;
  readonly to: IpAddress;
  readonly port: Port;
  /** Absent: any source. */
  readonly from?: IpAddress;
  readonly sourcePort?: number;
}

/** The result of one connection or flow. */
export interface WatchedFlow {
  readonly protocol: Protocol;
  readonly client: IpAddress;
  readonly clientPort: number;
  /** The original destination. */
  readonly to: IpAddress;
  readonly port: Port;
  readonly service: ServicePortKey;
  /** The chosen endpoint; absent if refused. */
  readonly endpoint?: EndpointKey;
  /** The address that the endpoint sees. */
  readonly seenAs?: IpAddress;
  /** The reason of the refusal, or the attempts that failed before. */
  readonly detail?: string;
}

/** Maximum number of watches at a time. */
export const MOST_WATCHES = 8;
/** A watch expires after this time without a request. */
export const WATCH_TTL_MS = 10_000;
/** Flows per watch; later ones are dropped. */
const MOST_FLOWS = 16;

interface Watch {
  readonly query: FlowQuery;
  readonly flows: WatchedFlow[];
  askedAt: number;
}

/** The watches of one forwarder. */
export class FlowWatches {
  readonly #watches = new Map<string, Watch>();
  /** Called for each flow that a watch reports, and for each query. */
  onReport: ((flow: WatchedFlow) => void) | undefined;
  onAsk: ((id: string, query: FlowQuery) => void) | undefined;

  /** Whether no watch exists, so that no flow has to be reported. */
  get isIdle(): boolean {
    return this.#watches.size === 0;
  }

  /**
   * The flows seen so far by a watch. The first call starts the watch. Throws a RangeError if there
   * are too many.
   */
  ask(
    id: string,
    { query, now }: { readonly query: FlowQuery; readonly now: number },
  ): readonly WatchedFlow[] {
    this.#forget(now);
    this.onAsk?.(id, query);
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

  /** Reports a connection or flow to the matching watches. */
  report(flow: WatchedFlow, now: number): void {
    this.#forget(now);
    let isReported = false;
    for (const { query, flows } of this.#watches.values()) {
      if (flows.length >= MOST_FLOWS || !isLike(flow, query)) continue;
      flows.push(flow);
      isReported = true;
    }
    if (isReported) this.onReport?.(flow);
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
