import { assertEquals } from "@std/assert";
import { createMetricsHandler, statuszPage } from "./metrics_server.ts";
import { SliMetrics } from "./sli_metrics.ts";

Deno.test("createMetricsHandler() compresses a scrape on request, and no other page", async () => {
  const handler = createMetricsHandler({
    ...{ mode: "userspace", flags: undefined, status: undefined, setVerbosity: undefined },
    render: () => Promise.resolve({ contentType: "text/plain", body: "a 1\n" }),
    slis: new SliMetrics({ startedAt: 0 }),
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

const START = Date.UTC(2026, 0, 1);

Deno.test("statuszPage() bears a clock that was set back", () => {
  const { fields } = statuszPage({
    startedAt: START,
    now: START - 5000,
    version: "",
    release: "",
    runtime: "",
    paths: [],
  });
  assertEquals(fields.uptimeSeconds, 0);
});
