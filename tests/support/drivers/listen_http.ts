/** A server of HTTP on a TCP socket, for tests of what answers and of what asks. */
import { SILENT_LOGGER } from "../../../lib/log/silent_logger.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import type { HttpHandler } from "../../../lib/os/http_connection.ts";
import {
  HttpConnections,
  type HttpConnectionsOptions,
  type HttpListener,
} from "../../../lib/os/http_server.ts";
import { type SocketAddress, systemNetwork } from "../../../lib/os/network.ts";

/** Listens until it is closed. */
export function listenHttp(
  address: SocketAddress,
  handler: HttpHandler,
  options: Partial<HttpConnectionsOptions> = {},
): HttpListener & { readonly address: SocketAddress } {
  const dependencies = { clock: systemClock, logger: SILENT_LOGGER };
  const connections = new HttpConnections(dependencies, { name: "test", ...options });
  const socket = systemNetwork.listenTcp(address);
  return { address: socket.addr, ...connections.serve(socket, handler) };
}
