/**
 * An HTTP server that keeps trying to get its address, as kube-proxy's health and metrics servers do.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import { messageOf } from "../log/message_of.ts";
import { isUnspecified, tryParseIpAddress } from "../net/ip_address.ts";
import type { Clock } from "./clock.ts";
import { type HttpHandler, type HttpListener, listenHttp } from "./http_listener.ts";
import { type Network, type SocketAddress, systemNetwork } from "./network.ts";
import { probeWildcard, wildcardHostnames } from "./wildcard.ts";

/** Time between two tries to bind. */
const RETRY_MS = 5000;

/** What is served, and where. */
export interface HttpServerOptions {
  /** For the log: `health`, `metrics`. */
  readonly name: string;
  /** An unspecified address, of either family, means every address of both, as in Go. */
  readonly address: SocketAddress;
  /** Whether an address that can't be had ends the server instead of being tried again. */
  readonly hardFail?: boolean;
  readonly handler: HttpHandler;
}

/** What a server needs. */
export interface HttpServerDependencies {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Tells what listening on every address means. @default {systemNetwork} */
  readonly network?: Pick<Network, "listenTcp">;
}

/**
 * Serves until the signal is aborted. An address that is taken is logged once and tried again every
 * 5 s, and so is a server that stops by itself; with `hardFail` either rejects. Resolves when the
 * sockets are closed.
 */
export async function runHttpServer(
  { clock, logger, network = systemNetwork }: HttpServerDependencies,
  options: HttpServerOptions & { readonly signal: AbortSignal },
): Promise<void> {
  const { name, address, hardFail = false, signal } = options;
  let complained = false;
  while (!signal.aborted) {
    try {
      const listeners = await openAll(hostnamesOf(address, network), {
        address,
        handler: reportingHandler(logger, options),
      });
      const listens = { server: name, ...listeners[0]?.address };
      // Whoever read the error above waits for this line.
      if (complained) logger.info("Server listens", listens);
      else logger.verbose(1, "Server listens", listens);
      complained = false;
      await serve(listeners, signal);
      if (!signal.aborted) throw new Error("the server stopped by itself");
    } catch (error) {
      if (hardFail) throw bindError(options, error);
      if (!complained) {
        logger.error("Cannot listen; tried again every 5 s", { server: name, ...address, error });
      }
      complained = true;
      await clock.sleep(RETRY_MS, signal).catch(() => {});
    }
  }
}

/** Asked at each try: IPv6 may come up later than this process. */
function hostnamesOf(
  { hostname }: SocketAddress,
  network: Pick<Network, "listenTcp">,
): readonly string[] {
  const address = tryParseIpAddress(hostname);
  const isWildcard = address !== undefined && isUnspecified(address);
  return isWildcard ? wildcardHostnames(probeWildcard(network)) : [hostname];
}

async function openAll(
  hostnames: readonly string[],
  { address, handler }: Pick<HttpServerOptions, "address" | "handler">,
): Promise<readonly HttpListener[]> {
  const listeners: HttpListener[] = [];
  try {
    let { port } = address;
    for (const hostname of hostnames) {
      const listener = listenHttp({ hostname, port }, handler);
      listeners.push(listener);
      port = listener.address.port;
    }
    return listeners;
  } catch (error) {
    await closeAll(listeners);
    throw error;
  }
}

/** A fault of ours, which the client's 500 does not tell. */
function reportingHandler(
  logger: Logger,
  { name, handler }: Pick<HttpServerOptions, "name" | "handler">,
): HttpHandler {
  return async (request, peer) => {
    try {
      return await handler(request, peer);
    } catch (error) {
      logger.error("Cannot answer a request", { server: name, error });
      throw error;
    }
  };
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
