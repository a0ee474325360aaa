import { type HttpHead, STATUS_TEXT } from "./http_head.ts";
import type { TcpConnection } from "./network.ts";

/** The header `server` of every response: kube-proxy sends none, so it identifies kube-relay. */
export const SERVER_NAME = "kube-relay";

interface ResponseOptions {
  readonly head: Pick<HttpHead, "method" | "takesChunks" | "keepsOpen">;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** Aborted when the client disconnects. */
  readonly gone: AbortSignal;
  /** Called if the body fails. */
  readonly onError: (error: unknown) => void;
  /** Called before and after a piece of a stream is written. */
  readonly onPiece?: (isUnderWay: boolean) => void;
}

type Sink = Pick<TcpConnection, "write">;

/** Returns a status as plain text. */
export function statusAnswer(status: number): Response {
  const text = `${status} ${(STATUS_TEXT[status] ?? "").toLowerCase()}\n`;
  return new Response(text, {
    status,
    headers: { "content-type": "text/plain; charset=utf-8", "content-length": `${text.length}` },
  });
}

/**
 * Writes a response. If the handler sets `content-length` or `transfer-encoding: chunked`, the body
 * is written piece by piece; any other body is read into memory to know its length.
 */
export async function writeResponse(
  sink: Sink,
  response: Response,
  options: ResponseOptions,
): Promise<void> {
  const { method, takesChunks } = options.head;
  const { headers, status } = response;
  const isStream = headers.has("transfer-encoding");
  let whole: Uint8Array | undefined;
  if (!isStream && !headers.has("content-length") && status !== 204 && status !== 304) {
    whole = await response.bytes();
    headers.set("content-length", String(whole.length));
  }
  const hasBody = method !== "HEAD" && status !== 204 && status !== 304;
  const start = new TextEncoder().encode(responseHead(response, options));
  if (!hasBody || whole !== undefined) {
    // In one piece: half a response would wait for the client's acknowledgement.
    await writeAll(sink, hasBody && whole ? joined(start, whole) : start);
    if (!hasBody) await response.body?.cancel();
    return;
  }
  await writeAll(sink, start);
  if (isStream && takesChunks) {
    await writePieces({ write: (piece) => writeChunk(sink, piece) }, response, options);
    await writeAll(sink, new TextEncoder().encode("0\r\n\r\n"));
  } else await writePieces({ write: (piece) => writeAll(sink, piece) }, response, options);
}

/** Returns the status line and the headers, with the empty line after them. */
export function responseHead(
  { headers, status }: Response,
  { head: { takesChunks, keepsOpen }, now }: Pick<ResponseOptions, "head" | "now">,
): string {
  const lines = [`HTTP/1.1 ${status} ${STATUS_TEXT[status] ?? ""}`];
  headers.set("server", SERVER_NAME);
  headers.set("date", new Date(now).toUTCString());
  const isUnframed = headers.has("transfer-encoding") && !takesChunks;
  if (isUnframed) headers.delete("transfer-encoding");
  if (!keepsOpen || isUnframed) headers.set("connection", "close");
  else if (!takesChunks) headers.set("connection", "keep-alive");
  for (const [name, value] of headers) lines.push(`${name}: ${value}`);
  return `${lines.join("\r\n")}\r\n\r\n`;
}

async function writePieces(
  sink: { write(piece: Uint8Array): Promise<void> },
  { body }: Response,
  { gone, onError, onPiece }: ResponseOptions,
): Promise<void> {
  const reader = body?.getReader();
  if (reader === undefined) return;
  const cancel = () => void reader.cancel().catch(() => {});
  if (onPiece) gone.addEventListener("abort", cancel, { once: true });
  if (onPiece && gone.aborted) cancel();
  try {
    for (;;) {
      const { value } = await reader.read().catch((error) => {
        onError(error);
        throw error;
      });
      if (value === undefined) return;
      onPiece?.(true);
      if (value.length > 0) await sink.write(value);
      onPiece?.(false);
    }
  } finally {
    gone.removeEventListener("abort", cancel);
    cancel();
  }
}

async function writeChunk(sink: Sink, piece: Uint8Array): Promise<void> {
  const encoder = new TextEncoder();
  const size = encoder.encode(`${piece.length.toString(16)}\r\n`);
  await writeAll(sink, joined(size, piece, encoder.encode("\r\n")));
}

async function writeAll(sink: Sink, bytes: Uint8Array): Promise<void> {
  for (let sent = 0; sent < bytes.length;) sent += await sink.write(bytes.subarray(sent));
}

function joined(...parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
