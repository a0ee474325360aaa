/**
 * The answers of the metrics port that are no metrics. None of them may be taken for a page with
 * scripts by a browser.
 *
 * @module
 */

const NO_SNIFFING = { "x-content-type-options": "nosniff" };

/** Plain text. */
export function answerText(body: string, status = 200): Response {
  const headers = { ...NO_SNIFFING, "content-type": "text/plain; charset=utf-8" };
  return new Response(body, { status, headers });
}

/** An object as JSON without a line end, or as YAML, of which JSON is a part. */
export function answerJson(body: unknown, contentType = "application/json"): Response {
  const headers = { ...NO_SNIFFING, "content-type": contentType };
  return new Response(JSON.stringify(body), { headers });
}

/** For a path that there is not. */
export function answerNotFound(): Response {
  return answerText("404 page not found\n", 404);
}

/** Whether a request only reads, or the answer to it. HEAD is GET without the body. */
export function refuseWriting({ method }: Request): Response | undefined {
  if (method === "GET" || method === "HEAD") return undefined;
  const refusal = answerText("Only GET and HEAD are answered here\n", 405);
  refusal.headers.set("allow", "GET, HEAD");
  return refusal;
}
