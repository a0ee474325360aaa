import { assertEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { createMetricsHandler } from "./metrics_server.ts";
import { isLocalRequest } from "../os/plain_answer.ts";

/** The pages of a process that started five seconds in the future: its clock was set back. */
function createPages(set: number[] = []) {
  const clock = new FakeClock();
  return createMetricsHandler({
    ...{ mode: "userspace", clock, startedAt: clock.wallNow() + 5000 },
    flags: () => ({ v: "2" }),
    status: { version: "1.2.3", release: "1.36", runtime: "deno" },
    setVerbosity: (level) => set.push(level),
    render: () => Promise.resolve({ contentType: "text/plain", body: "a 1\n" }),
    configuration: () => ({}),
  });
}

function ask(path: string, headers: Record<string, string> = {}) {
  return createPages()(new Request(`http://localhost${path}`, { headers }), undefined);
}

Deno.test("createMetricsHandler() compresses a scrape on request, and no other page", async () => {
  const encodings: Record<string, string | null> = {};
  for (const path of ["/metrics", "/metrics/slis", "/proxyMode"]) {
    const answer = await ask(path, { "accept-encoding": "gzip" });
    encodings[path] = answer.headers.get("content-encoding");
    await answer.body?.cancel();
  }
  assertEquals(encodings, { "/metrics": "gzip", "/metrics/slis": "gzip", "/proxyMode": null });
});

Deno.test("/statusz bears a clock that was set back", async () => {
  const accept = "application/json;g=config.k8s.io;v=v1beta1;as=Statusz";
  assertEquals((await (await ask("/statusz", { accept })).json()).uptimeSeconds, 0);
});

const TEXT = "text/plain; charset=utf-8";
const NAMED = "g=config.k8s.io;v=v1beta1;as=Flagz";

/** Accept headers and the answer to each: its media type, or 406. */
const ACCEPTS: readonly (readonly [accept: string, expect: string | 406])[] = [
  ["", TEXT],
  ["*/*", TEXT],
  ["text/*", TEXT],
  ["text/html, text/plain;q=0.5", TEXT],
  [`application/json;${NAMED}`, "application/json"],
  [`application/yaml;${NAMED}`, "application/yaml"],
  [`Application/JSON; as=Flagz; v=v1alpha1; g=config.k8s.io`, "application/json"],
  [`application/json;${NAMED};q=0, text/plain`, TEXT],
  [`application/cbor;${NAMED}, application/json;${NAMED}`, "application/json"],
  ["application/json", 406],
  ["application/json;g=config.k8s.io;v=v1beta1;as=Statusz", 406],
  ["application/json;g=config.k8s.io;v=v2;as=Flagz", 406],
  ["application/json;g=apps;v=v1beta1;as=Flagz", 406],
  ["text/html", 406],
  ["*/*;q=0.0", 406],
];

for (const [accept, expect] of ACCEPTS) {
  Deno.test(`/flagz answers 'Accept: ${accept}' with ${expect}`, async () => {
    const answer = await ask("/flagz", { accept });
    const type = answer.headers.get("content-type");
    assertEquals(answer.status === 200 ? type : answer.status, expect);
  });
}

Deno.test.each(
  [
    ["127.0.0.1", "localhost:10249", true],
    ["127.0.0.1", "127.0.0.1:10249", true],
    ["::1", "[::1]:10249", true],
    ["127.0.0.1", "192.0.2.7:10249", true],
    ["127.0.0.1", "rebound.example:10249", false],
    ["127.0.0.1", "localhost.example:10249", false],
    ["192.0.2.7", "localhost:10249", false],
    ["192.0.2.7", "192.0.2.7:10249", false],
    ["unknown", "localhost", false],
  ] as const,
)("isLocalRequest() of %s asking for %s", (peer, host, expected) => {
  const address = peer === "unknown" ? undefined : parseIpAddress(peer);
  assertEquals(isLocalRequest(new Request(`http://${host}/`), address), expected);
});

/** Name, method, body, status, and the level that is set. */
const LEVELS: readonly (readonly [string, string, string | undefined, number, number?])[] = [
  ["sets a level", "PUT", "4", 200, 4],
  ["sets a level with a line end", "PUT", " 0\n", 200, 0],
  ["sets the highest level", "PUT", "10", 200, 10],
  ["refuses GET", "GET", undefined, 406],
  ["refuses POST", "POST", "4", 406],
  ["refuses an empty level", "PUT", "", 400],
  ["refuses a word", "PUT", "debug", 400],
  ["refuses a negative level", "PUT", "-1", 400],
  ["refuses a level too high", "PUT", "11", 400],
  ["refuses a long text", "PUT", "1".repeat(100_000), 400],
];

for (const [name, method, body, status, level] of LEVELS) {
  Deno.test(`/debug/flags/v ${name}, and does not exist for other machines`, async () => {
    for (const peer of ["127.0.0.1", "10.0.0.1"]) {
      const set: number[] = [];
      const init = { method, ...(body !== undefined && { body }) };
      const request = new Request("http://localhost/debug/flags/v", init);
      const answer = await createPages(set)(request, parseIpAddress(peer));
      const isLocal = peer === "127.0.0.1";
      assertEquals([answer.status, set], [
        isLocal ? status : 404,
        isLocal && level !== undefined ? [level] : [],
      ]);
    }
  });
}
