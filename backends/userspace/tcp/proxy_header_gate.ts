import { CidrCover } from "../../../lib/net/cidr_cover.ts";
import { tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import type { TcpConnection } from "../../../lib/os/network.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { Forwarding } from "../forwarding.ts";
import {
  type CarriedConnection,
  MOST_HEADER_BYTES,
  parseProxyHeader,
} from "../proxy_protocol/proxy_header.ts";
import { SessionTimeouts } from "../session_timeouts.ts";
import type { TcpSession } from "./tcp_session.ts";

const DEFAULT_TIMEOUT_MS = 3000;
/**
 * Connections of one ServicePort that may wait for their headers, in each thread. Ten thousand in a
 * second leave each of them 100 ms, and a header follows the handshake at once.
 */
const MOST_WAITING = 1024;
/** A connection that has waited for so long may be closed for a new one if there is no room. */
const PROMPT_MS = 250;

/** The start of a connection from a trusted client. */
export type ReceivedHeader =
  | {
    readonly kind: "header";
    readonly carried: CarriedConnection | undefined;
    /** Data that came together with the header. */
    readonly rest: Uint8Array;
  }
  /** The connection ended before anything came, as with health checks, or was closed here. */
  | { readonly kind: "nothing" }
  | { readonly kind: "invalid"; readonly reason: string };

/** Reads the PROXY protocol header of connections from trusted clients. */
export class ProxyHeaderGate {
  readonly #forwarding: Forwarding;
  #trusted = new CidrCover([]);
  #timeouts: SessionTimeouts<TcpSession> | undefined;
  /** Sessions whose header has not come, with their start; the one that has waited longest first. */
  readonly #waiting = new Map<TcpSession, number>();
  /** Why sessions were closed that waited for a header. */
  readonly #reasons = new WeakMap<TcpSession, string>();

  constructor(forwarding: Forwarding) {
    this.#forwarding = forwarding;
  }

  /** Sessions whose client is unknown, because their header has not come. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Adopts other settings. Sessions that wait keep their time-out. */
  update({ acceptProxyFrom = [], proxyTimeoutMs = DEFAULT_TIMEOUT_MS }: EdgeSettings): void {
    this.#trusted = new CidrCover(acceptProxyFrom);
    this.#timeouts = new SessionTimeouts(
      this.#forwarding.clock,
      { lifetimeMs: proxyTimeoutMs },
      (session) => this.#giveUp(session, "it did not come in time"),
    );
  }

  /** Whether a client has to send a header. */
  trusts(client: string): boolean {
    const address = tryParseIpAddress(client);
    return address !== undefined && this.#trusted.contains(address);
  }

  /** Reads the header of a session that has just begun. Closes the session if it takes too long. */
  async read(session: TcpSession, connection: TcpConnection): Promise<ReceivedHeader> {
    const { clock, smallBuffers } = this.#forwarding;
    const buffer = smallBuffers.take();
    const timeouts = this.#timeouts;
    const now = clock.now();
    if (this.#waiting.size >= MOST_WAITING) this.#giveUpFirst(`${MOST_WAITING} others wait, too`);
    this.#waiting.set(session, now);
    timeouts?.enter(session, now);
    try {
      return await readHeader(connection, buffer.subarray(0, MOST_HEADER_BYTES));
    } catch {
      const reason = this.#reasons.get(session);
      return reason === undefined ? { kind: "nothing" } : { kind: "invalid", reason };
    } finally {
      this.leave(session);
      timeouts?.leave(session);
      smallBuffers.give(buffer);
    }
  }

  /** Whether the header of a session is late. */
  get hasLate(): boolean {
    const { value: since } = this.#waiting.values().next();
    return since !== undefined && since <= this.#forwarding.clock.now() - PROMPT_MS;
  }

  /** Closes up to `count` sessions whose header is late, and returns their number. */
  closeLate(count: number): number {
    const before = this.#forwarding.clock.now() - PROMPT_MS;
    let closed = 0;
    for (const since of this.#waiting.values()) {
      if (closed === count || since > before) break;
      this.#giveUpFirst("it did not come at once, and a new connection needed the room");
      closed++;
    }
    return closed;
  }

  /** A session has ended, or its header has come. */
  leave(session: TcpSession): void {
    this.#waiting.delete(session);
  }

  #giveUpFirst(reason: string): void {
    const [first] = this.#waiting.keys();
    if (first) this.#giveUp(first, reason);
  }

  #giveUp(session: TcpSession, reason: string): void {
    this.#waiting.delete(session);
    this.#reasons.set(session, reason);
    session.close();
  }
}

async function readHeader(connection: TcpConnection, buffer: Uint8Array): Promise<ReceivedHeader> {
  for (let filled = 0;;) {
    const count = await connection.read(buffer.subarray(filled));
    if (count === null) {
      return filled === 0
        ? { kind: "nothing" }
        : { kind: "invalid", reason: "the connection ended within it" };
    }
    filled += count;
    const parsed = parseProxyHeader(buffer.subarray(0, filled));
    if (parsed.kind === "invalid") return parsed;
    if (parsed.kind === "incomplete") continue;
    const { carried, length } = parsed;
    return { kind: "header", carried, rest: buffer.slice(length, filled) };
  }
}
