import { assertEquals, assertThrows } from "@std/assert";
import { HttpRefusal, parseHttpHead } from "./http_head.ts";

function parse(requestLine: string, ...headers: readonly string[]) {
  return parseHttpHead([requestLine, ...headers].join("\r\n"));
}

/** Name, request line, headers, and the URL, or the status of the refusal. */
const ROWS: readonly (readonly [string, string, readonly string[], string | number])[] = [
  ["a plain request", "GET /livez HTTP/1.1", ["Host: a:1"], "http://a:1/livez"],
  ["lines that end by LF alone", "GET / HTTP/1.1\nHost: a", [], "http://a/"],
  ["a query", "GET /a?b=/c%20d HTTP/1.1", ["host:a"], "http://a/a?b=/c%20d"],
  ["an absolute target", "GET http://b/x?y HTTP/1.1", ["Host: a"], "http://a/x?y"],
  ["a target of a proxy's", "GET //b/x HTTP/1.1", ["Host: a"], "http://a//b/x"],
  ["the target *", "OPTIONS * HTTP/1.1", ["Host: a"], "http://a/*"],
  ["HTTP/1.0 without a host", "GET / HTTP/1.0", [], "http://unreadable.invalid/"],
  [
    "a host that no URL can have",
    "GET / HTTP/1.1",
    ["Host: 10.0.0.256"],
    "http://unreadable.invalid/",
  ],
  ["an empty host", "GET / HTTP/1.1", ["Host:"], "http://unreadable.invalid/"],
  ["no host", "GET / HTTP/1.1", [], 400],
  ["two hosts", "GET / HTTP/1.1", ["Host: a", "host: b"], 400],
  ["a host with a path", "GET / HTTP/1.1", ["Host: a/b"], 400],
  ["a host with a user", "GET / HTTP/1.1", ["Host: u@a"], 400],
  ["no target", "GET HTTP/1.1", ["Host: a"], 400],
  ["a relative target", "GET x HTTP/1.1", ["Host: a"], 400],
  ["a space too much", "GET  / HTTP/1.1", ["Host: a"], 400],
  ["a lone word", "hello", [], 400],
  ["HTTP/2 without a negotiation", "PRI * HTTP/2.0", [], 505],
  ["a method that opens a tunnel", "CONNECT a:443 HTTP/1.1", ["Host: a"], 405],
  ["a method that sends back", "TRACE / HTTP/1.1", ["Host: a"], 405],
  ["a folded header", "GET / HTTP/1.1", ["Host: a", " b"], 400],
  ["a space before the colon", "GET / HTTP/1.1", ["Host : a"], 400],
  ["a header without a name", "GET / HTTP/1.1", ["Host: a", ": b"], 400],
  ["a control character", "GET / HTTP/1.1", ["Host: a", "X: b\0c"], 400],
  ["a lone CR", "GET / HTTP/1.1", ["Host: a", "X: b\rc"], 400],
  ["two lengths", "PUT / HTTP/1.1", ["Host: a", "Content-Length: 1", "Content-Length: 1"], 400],
  ["a length of none", "PUT / HTTP/1.1", ["Host: a", "Content-Length: -1"], 400],
  ["chunks", "PUT / HTTP/1.1", ["Host: a", "Transfer-Encoding: chunked"], 411],
  [
    "chunks and a length",
    "PUT / HTTP/1.1",
    ["Host: a", "Content-Length: 1", "Transfer-Encoding: chunked"],
    411,
  ],
];

for (const [name, requestLine, headers, expected] of ROWS) {
  Deno.test(`parseHttpHead() accepts or refuses ${name}`, () => {
    if (typeof expected === "string") {
      return assertEquals(parse(requestLine, ...headers).url, expected);
    }
    const refusal = assertThrows(() => parse(requestLine, ...headers), HttpRefusal);
    assertEquals(refusal.status, expected);
  });
}

Deno.test("parseHttpHead() reads the length of the body, and whether the connection stays", () => {
  const rows: readonly (readonly [string, readonly string[], boolean])[] = [
    ["1.1", [], true],
    ["1.1", ["Connection: Close"], false],
    ["1.0", [], false],
    ["1.0", ["Connection: Keep-Alive"], true],
  ];
  for (const [version, headers, keepsOpen] of rows) {
    const head = parse(`PUT / HTTP/${version}`, "Host: a", "Content-Length: 12", ...headers);
    assertEquals([head.keepsOpen, head.takesChunks], [keepsOpen, version === "1.1"]);
    assertEquals([head.bodyBytes, head.headers.get("content-length")], [12, "12"]);
  }
});
