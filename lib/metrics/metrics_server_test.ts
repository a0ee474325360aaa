import { assertEquals } from "@std/assert";
import { createMetricsHandler } from "./metrics_server.ts";

const handler = createMetricsHandler({
  render: () => Promise.resolve({ contentType: "text/plain; x", body: "a 1\n" }),
  mode: "userspace",
});

async function ask(path: string, method = "GET") {
  const response = await handler(new Request(`http://localhost${path}`, { method }));
  const type = response.headers.get("content-type");
  return { status: response.status, type, body: await response.text() };
}

Deno.test("createMetricsHandler() serves the metrics", async () => {
  assertEquals(await ask("/metrics"), { status: 200, type: "text/plain; x", body: "a 1\n" });
  assertEquals((await ask("/metrics", "POST")).status, 405);
});

Deno.test("createMetricsHandler() tells the mode, without a line end, as kube-proxy does", async () => {
  const type = "text/plain; charset=utf-8";
  assertEquals(await ask("/proxyMode"), { status: 200, type, body: "userspace" });
  assertEquals((await ask("/proxyMode", "POST")).status, 200);
});

Deno.test("createMetricsHandler() answers for the port itself under /healthz", async () => {
  assertEquals((await ask("/healthz")).body, "ok");
});

Deno.test("createMetricsHandler() serves nothing else, least of all the status", async () => {
  for (const path of ["/", "/status", "/metrics/", "/dump", "/configz"]) {
    assertEquals((await ask(path)).status, 404, path);
  }
});
