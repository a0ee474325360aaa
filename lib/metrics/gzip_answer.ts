/**
 * Compressed answers, for scrapes: Prometheus asks for them, and kube-proxy gives them.
 *
 * @module
 */

/** Compressed at a time: 64 KiB take 2 ms, in which nothing else runs. */
const PIECE_BYTES = 65_536;

/** The same answer, compressed where the request takes gzip. Consumes the body of the one given. */
export function gzipAnswer(request: Request, response: Response): Response {
  const { body, status } = response;
  const headers = new Headers(response.headers);
  headers.append("vary", "accept-encoding");
  if (body === null || !acceptsGzip(request.headers.get("accept-encoding") ?? "")) {
    return new Response(body, { status, headers });
  }
  headers.set("content-encoding", "gzip");
  const compressed = ReadableStream.from<BufferSource>(piecesOf(body)).pipeThrough(
    new CompressionStream("gzip"),
  );
  return new Response(compressed, { status, headers });
}

/** RFC 9110, 12.5.3: a weight of 0 refuses; what is not named is not taken, but for `*`. */
function acceptsGzip(acceptEncoding: string): boolean {
  const weights = new Map<string, number>();
  for (const item of acceptEncoding.toLowerCase().split(",")) {
    const [coding = "", weight = "q=1"] = item.split(";").map((part) => part.trim());
    weights.set(coding, Number(weight.replace(/^q=/, "")));
  }
  return (weights.get("gzip") ?? weights.get("x-gzip") ?? weights.get("*") ?? 0) > 0;
}

/** The body of a string is one chunk, however long. */
async function* piecesOf(
  body: ReadableStream<Uint8Array<ArrayBuffer>>,
): AsyncGenerator<BufferSource> {
  for await (const chunk of body) {
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
      yield chunk.subarray(at, at + PIECE_BYTES);
    }
  }
}
