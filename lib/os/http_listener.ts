/**
 * A socket that answers HTTP/1.1, and what of Deno's server has to be known to use it.
 *
 * Bounds: Deno.serve has no time-out for a request that never ends, nor one for idle connections, and
 * neither has kube-proxy. Who may not hold connections open has to be kept away by the address
 * that is bound, or by a firewall.
 *
 * @module
 */
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";
import type { SocketAddress } from "./network.ts";

/** The header `server` of every answer: it tells ours from kube-proxy's, which sends none. */
export const SERVER_NAME = "kube-relay";

/** Answers a request. `peer` is the client's address, IPv4 also where it came by way of `[::]`. */
export type HttpHandler = (
  request: Request,
  peer: IpAddress | undefined,
) => Response | Promise<Response>;

/** A socket that answers. */
export interface HttpListener {
  readonly address: SocketAddress;
  /** Resolves once the socket is closed, whoever did it. */
  readonly finished: Promise<void>;
  /**
   * Closes the socket and its connections. The port can be taken again once this has resolved, not
   * before: the kernel still refuses it in the same turn.
   */
  close(): Promise<void>;
}

/** What golang.org/x/net/http/httpguts.ValidHostHeader lets through. */
const GO_HOST = /^http:\/\/[\w!$%&'()*+,.:;=[\]~-]*(?=[/?]|$)/;

/** A name that is nobody's (RFC 2606): what is only for `localhost` is not for whoever wrote another. */
const UNREADABLE_HOST = "http://unreadable.invalid";

/** Opens an {@linkcode HttpListener}. Throws what {@linkcode listenHttp} throws. */
export type ListenHttp = (address: SocketAddress, handler: HttpHandler) => HttpListener;

/** Listens. Throws `Deno.errors.AddrInUse`, `AddrNotAvailable` or `PermissionDenied`. */
export function listenHttp(
  { hostname, port }: SocketAddress,
  handler: HttpHandler,
): HttpListener {
  const controller = new AbortController();
  const server = Deno.serve(
    {
      hostname,
      port,
      signal: controller.signal,
      onListen: () => {},
      // Without it Deno prints each error of a handler, which a client may be able to cause.
      onError: () => new Response("500 internal server error\n", { status: 500 }),
    },
    async (raw, { remoteAddr }) => {
      const request = withReadableUrl(raw);
      if (request === undefined) return new Response("400 bad request\n", { status: 400 });
      const response = await handler(request, tryParseIpAddress(remoteAddr.hostname));
      response.headers.set("server", SERVER_NAME);
      return response;
    },
  );
  return {
    address: server.addr,
    finished: server.finished,
    close() {
      controller.abort();
      return server.finished;
    },
  };
}

/**
 * Deno puts the Host header as it came into the URL, and new URL() refuses hosts that Go takes: an
 * IPv6 address with its zone, as Python's clients send it, or `10.0.0.256`. `undefined` for what Go
 * refuses, too.
 */
function withReadableUrl(request: Request): Request | undefined {
  if (URL.canParse(request.url)) return request;
  try {
    const { method, headers, body } = request;
    // Not the request itself: Deno would warn of its signal, which is copied then.
    return new Request(request.url.replace(GO_HOST, UNREADABLE_HOST), { method, headers, body });
  } catch {
    return undefined;
  }
}
