/**
 * An HTTP server that keeps trying to get its address, as kube-proxy's health and metrics servers do.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { isUnspecified, tryParseIpAddress } from "../net/ip_address.ts";
import type { Clock } from "./clock.ts";
import type { HttpHandler } from "./http_connection.ts";
import { type HttpBounds, HttpConnections, type HttpListener } from "./http_listener.ts";
import { type Network, type SocketAddress, systemNetwork, type TcpListener } from "./network.ts";
import { probeWildcard, wildcardHostnames } from "./wildcard.ts";

/** Time between two attempts to bind. */
const RETRY_MS = 5000;
/** The same in a handover: probes at an interval of half a second miss at most one answer. */
export const HANDOVER_RETRY_MS = 100;

/** Another program has the addresses of this one and is about to end. */
export interface AddressHandover {
  /** Whether the other program may still have the addresses. */
  readonly pending: boolean;
}

interface HttpServerOptions {
  /** For the log: `health`, `metrics`. */
  readonly name: string;
  /** An unspecified address, of either family, means every address of both, as in Go. */
  readonly address: SocketAddress;
  /** Whether an address that cannot be bound ends the server instead of being retried. */
  readonly hardFail?: boolean;
  /**
   * If it is pending at the start, the address is tried every 100 ms. While it is pending, an address
   * in use is no error, and `hardFail` does not apply to it. @default {none}
   */
  readonly handover?: AddressHandover;
  readonly handler: HttpHandler;
  /** @default {those of HttpConnections} */
  readonly bounds?: HttpBounds;
  /** Called for each connection that was refused, or closed for a new one. */
  readonly onRefused?: () => void;
}

interface HttpServerDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Determines the sockets for every address. @default {systemNetwork} */
  readonly network?: Pick<Network, "listenTcp">;
}

/**
 * Serves until the signal is aborted. An address in use is logged once and retried every 5 s (100
 * ms in a handover), as is a server that stops by itself; with `hardFail` either rejects. Resolves
 * when the sockets are closed.
 */
export async function runHttpServer(
  { clock, logger, network = systemNetwork }: HttpServerDependencies,
  options: HttpServerOptions & { readonly signal: AbortSignal },
): Promise<void> {
  const { name, address, hardFail = false, handover, signal } = options;
  const retryMs = handover?.pending ? HANDOVER_RETRY_MS : RETRY_MS;
  const connections = new HttpConnections({ clock, logger }, options);
  let logged: "wait" | "error" | undefined;
  while (!signal.aborted) {
    try {
      const sockets = openAll(hostnamesOf(address, network), address.port);
      const listens = { server: name, ...sockets[0]?.addr };
      // A reader of the earlier error waits for this line.
      if (logged) logger.info("Server listens", listens);
      else logger.verbose(1, "Server listens", listens);
      logged = undefined;
      await serve(
        sockets.map((socket) => connections.serve(socket, options.handler)),
        signal,
      );
      if (!signal.aborted) throw new Error("the server stopped unexpectedly");
    } catch (error) {
      const waits = error instanceof Deno.errors.AddrInUse && handover?.pending === true;
      if (hardFail && !waits) throw bindError(options, error);
      const fields = { server: name, ...address, retryMs };
      if (waits && !logged) {
        logger.info("Waiting until another program releases the address", fields);
      }
      if (!waits && logged !== "error") {
        logger.error("Cannot listen; retrying", { ...fields, error });
      }
      logged = waits ? "wait" : "error";
      await clock.sleep(retryMs, signal).catch(() => {});
    }
  }
}

/** Called for each attempt, because IPv6 may come up later than this process. */
function hostnamesOf(
  { hostname }: SocketAddress,
  network: Pick<Network, "listenTcp">,
): readonly string[] {
  const address = tryParseIpAddress(hostname);
  const isWildcard = address !== undefined && isUnspecified(address);
  return isWildcard ? wildcardHostnames(probeWildcard(network)) : [hostname];
}

function openAll(hostnames: readonly string[], wanted: number): readonly TcpListener[] {
  const sockets: TcpListener[] = [];
  try {
    let port = wanted;
    for (const hostname of hostnames) {
      const socket = systemNetwork.listenTcp({ hostname, port });
      sockets.push(socket);
      port = socket.addr.port;
    }
    return sockets;
  } catch (error) {
    for (const socket of sockets) socket.close();
    throw error;
  }
}

async function serve(listeners: readonly HttpListener[], signal: AbortSignal): Promise<void> {
  const onAbort = () => void closeAll(listeners);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  await Promise.race(listeners.map(({ finished }) => finished));
  signal.removeEventListener("abort", onAbort);
  await closeAll(listeners);
}

async function closeAll(listeners: readonly HttpListener[]): Promise<void> {
  await Promise.all(listeners.map((listener) => listener.close()));
}

function bindError({ name, address }: HttpServerOptions, cause: unknown): Error {
  const reason = messageOf(cause);
  return new Error(
    `Cannot listen on ${address.hostname}:${address.port} for the ${name} server: ${reason}`,
    { cause },
  );
}
