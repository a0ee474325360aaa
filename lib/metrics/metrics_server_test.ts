import { assertEquals } from "@std/assert";
import { createMetricsHandler, flagzPage, type MetricsHandlerOptions } from "./metrics_server.ts";
import { createSliMetrics } from "./sli_metrics.ts";

function createHandler(options: Partial<MetricsHandlerOptions> = {}) {
  const handler = createMetricsHandler({
    render: () => Promise.resolve({ contentType: "text/plain; x", body: "a 1\n" }),
    slis: createSliMetrics({ startedAt: 0 }),
    mode: "userspace",
    configuration: () => ({}),
    flags: undefined,
    status: undefined,
    setVerbosity: undefined,
    ...options,
  });
  return async (path: string, method = "GET") =>
    await handler(new Request(`http://localhost${path}`, { method }), undefined);
}

Deno.test("createMetricsHandler() has no page that is switched off", async () => {
  const ask = createHandler();
  for (const path of ["/flagz", "/statusz", "/debug/flags/v"]) {
    assertEquals((await ask(path, "PUT")).status, 404, path);
  }
});

Deno.test("createMetricsHandler() compresses a scrape for whoever asks for it, and no other page", async () => {
  const handler = createMetricsHandler({
    ...{ mode: "userspace", flags: undefined, status: undefined, setVerbosity: undefined },
    render: () => Promise.resolve({ contentType: "text/plain", body: "a 1\n" }),
    slis: createSliMetrics({ startedAt: 0 }),
    configuration: () => ({}),
  });
  const encodings: Record<string, string | null> = {};
  for (const path of ["/metrics", "/metrics/slis", "/proxyMode"]) {
    const headers = { "accept-encoding": "gzip" };
    const answer = await handler(new Request(`http://localhost${path}`, { headers }), undefined);
    encodings[path] = answer.headers.get("content-encoding");
    await answer.body?.cancel();
  }
  assertEquals(encodings, { "/metrics": "gzip", "/metrics/slis": "gzip", "/proxyMode": null });
});

Deno.test("flagzPage() sorts flags, and takes out what may be secret", () => {
  const { lines, fields } = flagzPage({
    "v": "2",
    "master": "https://admin:hunter2@10.0.0.1:6443",
    "api-token": "abc",
    "kubeconfig": "/etc/kubeconfig",
  });
  assertEquals(lines, [
    "api-token=[redacted]",
    "kubeconfig=/etc/kubeconfig",
    "master=https://[redacted]@10.0.0.1:6443",
    "v=2",
  ]);
  const flags = Object.fromEntries(lines.map((line) => line.split("=")));
  assertEquals(fields, { flags });
});
