import { messageOf } from "../log/message_of.ts";
import { LinkedAbort } from "./linked_abort.ts";
import { type HttpRequest, type HttpResponse, TransportError, type Wire } from "./transport.ts";

/**
 * Requests to a plain `http://` server, such as `kubectl proxy` or the insecure port of a test API
 * server: HTTP/1.1, because neither supports HTTP/2 without TLS, with one connection per request.
 */
export function http1Wire(origin: string): Wire {
  // No pool of idle connections: it would return a broken one again and again.
  const client = Deno.createHttpClient({ poolMaxIdlePerHost: 0, http2: false });
  let isOpen = true;
  const send = async (request: HttpRequest): Promise<HttpResponse> => {
    const { path, signal, ...rest } = request;
    const response = await fetch(origin + path, { ...rest, client, signal, redirect: "error" })
      .catch((error: unknown) => {
        if (signal.aborted) throw signal.reason;
        const message = `Cannot connect to ${origin}: ${messageOf(error)}`;
        throw new TransportError("connect", message, { cause: error });
      });
    const reader = response.body?.getReader();
    // Deno 2.9 loses the signal's way to the body when the response is no longer referenced.
    const cancel = () => void reader?.cancel().catch(() => {});
    signal.addEventListener("abort", cancel, { once: true });
    return {
      status: response.status,
      contentType: response.headers.get("content-type") ?? undefined,
      retryAfter: response.headers.get("retry-after") ?? undefined,
      body: (async function* (): AsyncGenerator<Uint8Array, undefined> {
        for (let read = await reader?.read(); read?.value; read = await reader?.read()) {
          yield read.value;
        }
        return undefined;
      })(),
    };
  };
  return {
    open: () => Promise.resolve(),
    get isOpen() {
      return isOpen;
    },
    peer: undefined,
    send,
    // HTTP/1.1 has no ping: a small request over a connection of its own replaces it.
    async ping(signal) {
      using call = new LinkedAbort(signal);
      await send({ method: "GET", path: "/version", headers: {}, signal: call.signal });
      call.abort(new Error("nothing else is needed"));
    },
    close() {
      if (isOpen) client.close();
      isOpen = false;
    },
  };
}
