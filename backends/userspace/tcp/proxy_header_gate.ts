import { CidrCover } from "../../../lib/net/cidr_cover.ts";
import { tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import type { EngineConnection } from "../engine.ts";
import type { Forwarding } from "../forwarding.ts";
import type { ServiceAddress } from "../listeners.ts";
import {
  type CarriedConnection,
  type HeaderParse,
  MOST_HEADER_BYTES,
  parseProxyHeader,
} from "../proxy_protocol/proxy_header.ts";
import { type AwaitedStart, AwaitedStarts, type NoStart, readStart } from "./awaited_starts.ts";

/** A session of a client that has to send a header. */
interface TrustedSession {
  /** The header that has not come; `undefined` = none is waited for. */
  header: AwaitedStart | undefined;
  readonly closed: boolean;
  close(): void;
}

/** A connection, and where it came in. */
export interface AcceptedConnection {
  readonly connection: EngineConnection;
  readonly at: ServiceAddress;
}

/** A connection whose client is known. */
export interface ClientConnection extends AcceptedConnection {
  /** The client's address and port: its own, or those that a PROXY protocol header carries. */
  readonly client: string;
  readonly clientPort: number;
  /** The header's addresses. */
  readonly carried?: CarriedConnection | undefined;
  /** Data that came with the header. */
  readonly rest?: Uint8Array;
}

/** What was read of a connection before it was known which ServicePort it is for. */
export interface ConnectionStart {
  readonly received: Uint8Array;
  /** The PROXY protocol header with which it begins. */
  readonly header?: Pick<HeaderParse & { readonly kind: "complete" }, "carried" | "length">;
}

const DEFAULT_TIMEOUT_MS = 3000;

/** The cure for connections without a header. */
const HEADER_CURE =
  "let the client send PROXY protocol, or take its address out of kube-relay.io/accept-proxy-protocol-from";

/** The start of a connection from a trusted client. */
type ReceivedHeader =
  | {
    readonly kind: "header";
    readonly carried: CarriedConnection | undefined;
    /** Data that came together with the header. */
    readonly rest: Uint8Array;
  }
  | NoStart;

/** Reads the PROXY protocol header of connections from trusted clients. */
export class ProxyHeaderGate {
  readonly #forwarding: Forwarding;
  readonly #key: ServicePortKey;
  #trusted = new CidrCover([]);
  readonly #waiting: AwaitedStarts;

  constructor(forwarding: Forwarding, key: ServicePortKey) {
    this.#forwarding = forwarding;
    this.#key = key;
    this.#waiting = new AwaitedStarts(forwarding.clock, DEFAULT_TIMEOUT_MS);
  }

  /** Sessions whose client is unknown, because their header has not come. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Adopts other settings. */
  update({ acceptProxyFrom = [], proxyTimeoutMs = DEFAULT_TIMEOUT_MS }: EdgeSettings): void {
    this.#trusted = new CidrCover(acceptProxyFrom);
    this.#waiting.expireAfter(proxyTimeoutMs);
  }

  /** Whether a client has to send a header. */
  trusts(client: string): boolean {
    const address = tryParseIpAddress(client);
    return address !== undefined && this.#trusted.contains(address);
  }

  /**
   * Reads the header of a session that has just begun, and closes it if that takes too long. Returns the
   * connection with the addresses that the header carries; `undefined` if there is none, which is
   * counted unless the client sent nothing at all.
   */
  async read(
    session: TrustedSession,
    { connection, at }: AcceptedConnection,
  ): Promise<ClientConnection | undefined> {
    const awaited = session.header = this.#waiting.add(() => session.close());
    let header: ReceivedHeader;
    try {
      header = await readHeader(connection);
    } catch {
      const { reason } = awaited;
      header = reason === undefined ? { kind: "nothing" } : { kind: "invalid", reason };
    } finally {
      this.leave(session);
    }
    if (header.kind === "invalid") this.#report(connection, header.reason);
    if (header.kind !== "header" || session.closed) return undefined;
    return clientOf({ connection, at }, header);
  }

  /**
   * As {@linkcode read}, of what was read already. The caller closes a connection without a header.
   */
  take(
    accepted: AcceptedConnection,
    { received, header }: ConnectionStart,
  ): ClientConnection | undefined {
    if (header === undefined) {
      return this.#report(accepted.connection, "it does not begin with a PROXY header");
    }
    const { carried, length } = header;
    return clientOf(accepted, { carried, rest: received.subarray(length) });
  }

  /** Whether the header of a session is late. */
  get hasLate(): boolean {
    return this.#waiting.hasLate;
  }

  /** Closes up to `count` sessions whose header is late, and returns their number. */
  closeLate(count: number): number {
    return this.#waiting.closeLate(count);
  }

  /** A session has ended, or its header has come. */
  leave(session: TrustedSession): void {
    if (session.header) this.#waiting.delete(session.header);
    session.header = undefined;
  }

  #report(connection: EngineConnection, reason: string): undefined {
    const { counters, log } = this.#forwarding;
    counters.tcpRefused++;
    counters.proxyHeaderErrors++;
    log.warn("Closed a connection without a valid PROXY protocol header", {
      servicePort: this.#key,
      client: connection.remoteAddr.hostname,
      reason,
      cure: HEADER_CURE,
    });
  }
}

function clientOf(
  { connection, at }: AcceptedConnection,
  { carried, rest }: Pick<ReceivedHeader & { readonly kind: "header" }, "carried" | "rest">,
): ClientConnection {
  const { hostname, port } = connection.remoteAddr;
  const { address: client, port: clientPort } = carried?.source ?? { address: hostname, port };
  return { connection, at, client, clientPort, carried, rest };
}

function readHeader(connection: EngineConnection): Promise<ReceivedHeader> {
  const sizes = [MOST_HEADER_BYTES, MOST_HEADER_BYTES] as const;
  return readStart(connection, sizes, (received): ReceivedHeader | number => {
    const parsed = parseProxyHeader(received);
    if (parsed.kind === "incomplete") return 0;
    if (parsed.kind === "invalid") return parsed;
    const { carried, length } = parsed;
    return { kind: "header", carried, rest: received.slice(length) };
  });
}
