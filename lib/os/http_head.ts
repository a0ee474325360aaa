/**
 * The head of an HTTP/1 request, read as strictly as Go's server reads it. Pure.
 *
 * @module
 */

/** The request line and headers for a {@linkcode Request}. */
export interface HttpHead {
  readonly method: string;
  /** Absolute, with the host of the Host header. */
  readonly url: string;
  readonly headers: Headers;
  /** Bytes of the body that follows. */
  readonly bodyBytes: number;
  /** Whether the client accepts chunks, which HTTP/1.1 introduced. */
  readonly takesChunks: boolean;
  /** Whether the client keeps the connection for another request. */
  readonly keepsOpen: boolean;
}

/** A request that is refused with a status; the connection is closed. */
export class HttpRefusal extends Error {
  override name = "HttpRefusal";

  constructor(readonly status: number) {
    super(`refused with status ${status}`);
  }
}

/** The reason phrases of the used statuses. */
export const STATUS_TEXT: Readonly<Record<number, string>> = {
  200: "OK",
  400: "Bad Request",
  404: "Not Found",
  405: "Method Not Allowed",
  406: "Not Acceptable",
  408: "Request Timeout",
  411: "Length Required",
  413: "Content Too Large",
  431: "Request Header Fields Too Large",
  500: "Internal Server Error",
  503: "Service Unavailable",
  505: "HTTP Version Not Supported",
};

const REQUEST_LINE = /^([!#$%&'*+.^_`|~\w-]+) ([^\s]+) HTTP\/(\d)\.(\d)$/;
const HEADER = /^([!#$%&'*+.^_`|~\w-]+):[ \t]*(.*?)[ \t]*$/;
// deno-lint-ignore no-control-regex -- that is what it looks for
const CONTROL = /[\x00-\x08\x0a-\x1f\x7f]/;
/** The hosts that golang.org/x/net/http/httpguts.ValidHostHeader accepts. */
const GO_HOST = /^[\w!$%&'()*+,.:;=[\]~-]*$/;
/**
 * A name that no host has (RFC 2606): not `localhost`, which would grant the rights of this
 * machine.
 */
const UNREADABLE_HOST = "unreadable.invalid";
/** Methods that `Request` refuses. */
const NO_REQUEST = new Set(["CONNECT", "TRACE", "TRACK"]);

/** Reads a head without its empty line. Throws an {@linkcode HttpRefusal}. */
export function parseHttpHead(text: string): HttpHead {
  const [requestLine = "", ...lines] = text.split(/\r?\n/);
  const [, method = "", target = "", major, minor] = REQUEST_LINE.exec(requestLine) ?? [];
  if (method === "") throw new HttpRefusal(400);
  if (major !== "1") throw new HttpRefusal(505);
  if (NO_REQUEST.has(method.toUpperCase())) throw new HttpRefusal(405);
  const headers = parseHeaders(lines);
  const takesChunks = minor !== "0";
  const connection = (headers.get("connection") ?? "").toLowerCase();
  return {
    method,
    url: urlOf(target, hostOf(headers, { isRequired: takesChunks })),
    headers,
    bodyBytes: bodyBytesOf(headers),
    takesChunks,
    keepsOpen: takesChunks ? !connection.includes("close") : connection.includes("keep-alive"),
  };
}

function parseHeaders(lines: readonly string[]): Headers {
  const headers = new Headers();
  const seen = new Set<string>();
  for (const line of lines) {
    const [, name = "", value = ""] = HEADER.exec(line) ?? [];
    if (name === "" || CONTROL.test(value)) throw new HttpRefusal(400);
    const key = name.toLowerCase();
    // Two of them could make two servers see different requests.
    if (seen.has(key) && (key === "host" || key === "content-length")) throw new HttpRefusal(400);
    seen.add(key);
    headers.append(name, value);
  }
  return headers;
}

function hostOf(headers: Headers, { isRequired }: { readonly isRequired: boolean }): string {
  const host = headers.get("host");
  if ((host === null && isRequired) || !GO_HOST.test(host ?? "")) throw new HttpRefusal(400);
  return host ?? "";
}

/**
 * `new URL()` refuses hosts that Go accepts: an IPv6 address with its zone, as Python's clients
 * send it, or `10.0.0.256`.
 */
function urlOf(target: string, host: string): string {
  const [, path] = /^(?:https?:\/\/[^/?#]*)?([/?].*|)$/i.exec(target) ?? [];
  if (path === undefined && target !== "*") throw new HttpRefusal(400);
  const url = `http://${host}${path ?? "/*"}`;
  if (host !== "" && URL.canParse(url)) return url;
  const unreadable = `http://${UNREADABLE_HOST}${path ?? "/*"}`;
  if (!URL.canParse(unreadable)) throw new HttpRefusal(400);
  return unreadable;
}

/** Chunks are refused, as RFC 9112 allows: no client sends a long body here. */
function bodyBytesOf(headers: Headers): number {
  if (headers.has("transfer-encoding")) throw new HttpRefusal(411);
  const text = headers.get("content-length") ?? "0";
  if (!/^\d{1,15}$/.test(text)) throw new HttpRefusal(400);
  return Number(text);
}
