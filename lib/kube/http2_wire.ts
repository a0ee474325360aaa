// Not by `await import()`: in Deno 2.9 that costs 8 MiB for the life of the process.
import { type ClientHttp2Session, connect, type SecureClientSessionOptions } from "node:http2";
import type { Readable } from "node:stream";
import type { Clock } from "../os/clock.ts";
import type { TlsMaterial } from "./kube_auth.ts";
import { type HttpRequest, type HttpResponse, TransportError, type Wire } from "./transport.ts";

/** The error code of HTTP/2 for a request that is no longer needed. */
const CANCEL = 8;

/**
 * Bytes that the server may send before it needs an update of the window, for one answer and for all.
 * With the default of 64 KiB, the updates for lists of 10,000 objects take a quarter of the CPU time
 * of reading them. Larger windows than these save little more, and let the server fill the memory.
 */
const STREAM_WINDOW = 128 * 1024;
const SESSION_WINDOW = 256 * 1024;

/**
 * Bytes that the server may send besides the bodies of answers: headers, pings, updates of the window.
 * A thousand events a second need 9 bytes each. A flood is garbage that V8 collects late: 400 MB.
 */
const MAX_OVERHEAD = 4 * 1024 * 1024;
const OVERHEAD_PER_MS = 256;
/** An informational answer (1xx) takes as much time as this many bytes. */
const INFORMATION_COST = 4096;

/** The minimum cost of a chunk: its own memory, however small it is. */
const CHUNK_COST = 512;
/** A stream is paused while its reader has this many bytes to read. */
const MAX_UNREAD = 256 * 1024;

/**
 * One connection with TLS. `origin` is `https://host:port`. `onRetired`: the server ends it once its open
 * requests are done. `onFailed`: it is to be ended with all its requests, for this reason.
 */
export function http2Wire(
  clock: Clock,
  origin: string,
  tls: TlsMaterial,
  onRetired: () => void,
  onFailed: (reason: TransportError) => void,
): Wire {
  let session: ClientHttp2Session | undefined;
  let failure: TransportError | undefined;
  /** Bytes besides answers that the server may still send, at the time of the last ones. */
  let [overheadLeft, overheadAt] = [MAX_OVERHEAD, 0];
  const noteBytes = ({ length }: Uint8Array) => {
    const now = clock.now();
    const refilled = overheadLeft + (now - overheadAt) * OVERHEAD_PER_MS;
    overheadAt = now;
    overheadLeft = Math.min(MAX_OVERHEAD, refilled) - length;
    if (overheadLeft >= 0) return;
    const text = `it sent more than ${MAX_OVERHEAD} bytes besides answers`;
    onFailed(new TransportError("protocol", `Lost ${origin}: ${text}`));
  };
  const lost = (reason = "the server ended the request", cause?: unknown) =>
    failure ?? new TransportError("closed", `Lost ${origin}: ${reason}`, { cause });
  return {
    get isOpen() {
      return session !== undefined && !session.closed && !session.destroyed;
    },

    get peer() {
      return session && !session.destroyed ? session.socket.remoteAddress : undefined;
    },

    open() {
      const opened = session = connect(origin, sessionOptions(origin, tls));
      return new Promise((resolve, reject) => {
        opened.once("connect", () => {
          opened.setLocalWindowSize(SESSION_WINDOW);
          opened.socket.on("data", noteBytes);
          resolve();
        });
        opened.on("error", (error) => {
          failure ??= lost(error.message, error);
          reject(connectError(origin, error));
        });
        opened.on("close", () => {
          reject(failure ?? connectError(origin, new Error("the connection was closed")));
        });
        // The server completes its open streams and accepts no new ones.
        opened.on("goaway", onRetired);
      });
    },

    send({ method, path, headers, body, signal }: HttpRequest): Promise<HttpResponse> {
      const stream = session!.request({ ":method": method, ":path": path, ...headers });
      const cancel = () => stream.close(CANCEL);
      signal.addEventListener("abort", cancel, { once: true });
      stream.once("close", () => signal.removeEventListener("abort", cancel));
      stream.on("headers", () => overheadLeft -= INFORMATION_COST);
      stream.end(body);
      return new Promise((resolve, reject) => {
        // It stays: without a listener, a late error would end the process.
        stream.on("error", (error) => reject(lost(error.message, error)));
        stream.once("close", () => reject(lost()));
        stream.once("response", (found) => {
          const retryAfter = found["retry-after"];
          const chunks = chunksOf(stream);
          resolve({
            status: Number(found[":status"]),
            contentType: found["content-type"],
            retryAfter: typeof retryAfter === "string" ? retryAfter : undefined,
            body: (async function* (): AsyncGenerator<Uint8Array, undefined> {
              yield* chunks;
              // A cancelled stream, or one whose connection broke, ends like a complete one.
              if (failure !== undefined || stream.rstCode !== 0) throw lost();
              return undefined;
            })(),
          });
          stream.on("data", (chunk: Uint8Array) => overheadLeft += chunk.length);
        });
      });
    },

    ping: () =>
      new Promise((resolve) => {
        // An error ends the session, too.
        if (!session || session.destroyed) return;
        session.ping((error: Error | null) => error || resolve());
      }),

    close: () => void session?.destroy(),
  };
}

/**
 * Collects the chunks of a stream from now on, for a slow reader. Ends with the stream; throws its error,
 * or one when it was closed without an end. It does not use the stream's own async iterator: Deno 2.9's
 * `node:http2` closes a stream while its last chunks are still unread, and that iterator then fails
 * ("Premature close") in one of ten responses if the reader pauses between chunks.
 */
export function chunksOf(stream: Readable): AsyncGenerator<Uint8Array, undefined> {
  const chunks: Uint8Array[] = [];
  let unread = 0;
  let end: { readonly error?: unknown } | undefined;
  let wake = () => {};
  const costOf = ({ length }: Uint8Array) => Math.max(length, CHUNK_COST);
  const finish = (found: { readonly error?: unknown }) => {
    end ??= found;
    wake();
  };
  stream.on("data", (chunk: Uint8Array) => {
    chunks.push(chunk);
    unread += costOf(chunk);
    if (unread >= MAX_UNREAD) stream.pause();
    wake();
  });
  stream.on("end", () => finish({}));
  stream.on("error", (error) => finish({ error }));
  // After an orderly end this has no effect.
  stream.on("close", () => finish({ error: new Error("it was closed before its end") }));
  return (async function* () {
    for (;;) {
      const chunk = chunks.shift();
      if (chunk !== undefined) {
        unread -= costOf(chunk);
        if (stream.isPaused() && unread < MAX_UNREAD / 2) stream.resume();
        yield chunk;
      } else if (end === undefined) {
        await new Promise<void>((resolve) => wake = resolve);
      } else {
        if ("error" in end) throw end.error;
        return undefined;
      }
    }
  })();
}

function sessionOptions(origin: string, tls: TlsMaterial): SecureClientSessionOptions {
  const { hostname } = new URL(origin);
  const isIpHost = hostname.startsWith("[") || /^[0-9.]+$/.test(hostname);
  const servername = tls.serverName ?? (isIpHost ? undefined : hostname);
  // Not `ALPNProtocols`: node:http2 offers only h2 by itself.
  return {
    rejectUnauthorized: !tls.insecure,
    settings: { enablePush: false, initialWindowSize: STREAM_WINDOW },
    ...(tls.ca !== undefined && { ca: tls.ca }),
    ...(tls.cert !== undefined && { cert: tls.cert }),
    ...(tls.key !== undefined && { key: tls.key }),
    ...(servername !== undefined && { servername }),
  };
}

/** Returns the reason and the remedy. The codes come from Node and OpenSSL. */
function connectError(origin: string, error: Error & { code?: string }): TransportError {
  const cure = CURES.find(([pattern]) => pattern.test(error.code ?? ""))?.[1];
  const message = `Cannot connect to ${origin}: ${error.message}`;
  return new TransportError("connect", cure ? `${message}; ${cure}` : message, { cause: error });
}

const CURES: readonly (readonly [RegExp, string])[] = [
  [
    /SELF_SIGNED|UNABLE_TO_(GET|VERIFY)|CERT_UNTRUSTED/,
    "its certificate is not of the CA that the kubeconfig gives (certificate-authority-data)",
  ],
  [/ALTNAME/, "set tls-server-name in the kubeconfig to a name that the certificate has"],
  [/CERT_HAS_EXPIRED|CERT_NOT_YET_VALID/, "renew its certificate, or set this machine's clock"],
  [/NO_APPLICATION_PROTOCOL/, "it offers no HTTP/2, which API servers and their proxies must"],
  [/WRONG_VERSION_NUMBER/, "it doesn't speak TLS; should the address begin with http://?"],
];
