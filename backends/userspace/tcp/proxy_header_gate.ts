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
  readonly #trusted: CidrCover;
  readonly #timeouts: SessionTimeouts<TcpSession>;
  /** Sessions that were closed since their header did not come. */
  readonly #late = new Set<TcpSession>();

  constructor(
    forwarding: Forwarding,
    { acceptProxyFrom = [], proxyTimeoutMs = DEFAULT_TIMEOUT_MS }: EdgeSettings,
  ) {
    this.#forwarding = forwarding;
    this.#trusted = new CidrCover(acceptProxyFrom);
    this.#timeouts = new SessionTimeouts(
      forwarding.clock,
      { lifetimeMs: proxyTimeoutMs },
      (session) => {
        this.#late.add(session);
        session.close();
      },
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
    this.#timeouts.enter(session, clock.now());
    try {
      return await readHeader(connection, buffer.subarray(0, MOST_HEADER_BYTES));
    } catch {
      return this.#late.delete(session)
        ? { kind: "invalid", reason: "it did not come in time" }
        : { kind: "nothing" };
    } finally {
      this.#timeouts.leave(session);
      smallBuffers.give(buffer);
    }
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
