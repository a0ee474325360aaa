/**
 * An HTTP server that keeps trying to get its address, as kube-proxy's health and metrics servers do.
 *
 * @module
 */
import type { Logger } from "../log/logger.ts";
import type { Clock } from "./clock.ts";
import type { SocketAddress } from "./network.ts";

/** Time between two tries to bind. */
const RETRY_MS = 5000;

/** What is served, and where. */
export interface HttpServerOptions {
  /** For the log: `health`, `metrics`. */
  readonly name: string;
  readonly address: SocketAddress;
  /** Whether an address that can't be had ends the server instead of being tried again. */
  readonly hardFail?: boolean;
  /** `peer` is the address of the client; `undefined` where it is not known. */
  readonly handler: (request: Request, peer: string | undefined) => Response | Promise<Response>;
}

/**
 * Serves until the signal is aborted. An address that is taken is logged once and tried again every
 * 5 s; with `hardFail` it rejects. Resolves when the last answer has been sent.
 */
export async function runHttpServer(
  { clock, logger }: { readonly clock: Clock; readonly logger: Logger },
  options: HttpServerOptions & { readonly signal: AbortSignal },
): Promise<void> {
  const { name, address, hardFail = false, handler, signal } = options;
  let complained = false;
  while (!signal.aborted) {
    try {
      const server = Deno.serve(
        { ...address, signal, onListen: () => {} },
        // The URL holds the Host header as it came. Deno prints what a handler throws, each time.
        (request, { remoteAddr }) =>
          URL.canParse(request.url)
            ? handler(request, "hostname" in remoteAddr ? remoteAddr.hostname : undefined)
            : new Response("400 bad request\n", { status: 400 }),
      );
      logger.verbose(1, "Server listens", { server: name, ...server.addr });
      return await server.finished;
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

function bindError({ name, address }: HttpServerOptions, cause: unknown): Error {
  const reason = cause instanceof Error ? cause.message : String(cause);
  return new Error(
    `Cannot listen on ${address.hostname}:${address.port} for the ${name} server: ${reason}`,
    { cause },
  );
}
