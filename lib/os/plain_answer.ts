/**
 * Responses of the health and metrics ports other than metrics. A browser must not read any of them as a page
 * with scripts.
 *
 * @module
 */
import { type IpAddress, isLoopback, tryParseIpAddress } from "../net/ip_address.ts";

const NO_SNIFFING = { "x-content-type-options": "nosniff" };

/** Returns plain text. */
export function answerText(body: string, status = 200): Response {
  const headers = { ...NO_SNIFFING, "content-type": "text/plain; charset=utf-8" };
  return new Response(body, { status, headers });
}

/** Returns an object as JSON without a line end, or as YAML, of which JSON is a part. */
export function answerJson(
  body: unknown,
  contentType = "application/json",
  status = 200,
): Response {
  const headers = { ...NO_SNIFFING, "content-type": contentType };
  return new Response(JSON.stringify(body), { status, headers });
}

/** Returns the response for an unknown path. */
export function answerNotFound(): Response {
  return answerText("404 page not found\n", 404);
}

/** Returns the refusal of a request that is not read-only. HEAD is GET without the body. */
export function refuseWriting({ method }: Request): Response | undefined {
  if (method === "GET" || method === "HEAD") return undefined;
  const refusal = answerText("Only GET and HEAD are answered here\n", 405);
  refusal.headers.set("allow", "GET, HEAD");
  return refusal;
}

/**
 * Whether a request is from loopback and its Host header is `localhost` or an address. Other peers
 * must not read what this protects, whatever address is bound. A name in the Host header may belong
 * to a web page that makes a browser on this machine ask (DNS rebinding).
 */
export function isLocalRequest({ url }: Request, peer: IpAddress | undefined): boolean {
  if (peer === undefined || !isLoopback(peer)) return false;
  const { hostname } = new URL(url);
  const address = hostname.replace(/^\[|\]$/g, "");
  return hostname === "localhost" || tryParseIpAddress(address) !== undefined;
}
