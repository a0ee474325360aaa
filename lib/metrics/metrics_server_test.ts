import { assertEquals } from "@std/assert";
import {
  answerHealthz,
  createMetricsHandler,
  flagzPage,
  type MetricsHandlerOptions,
  statuszPage,
} from "./metrics_server.ts";
import { SliMetrics } from "./sli_metrics.ts";

function createHandler(options: Partial<MetricsHandlerOptions> = {}) {
  const handler = createMetricsHandler({
    render: () => Promise.resolve({ contentType: "text/plain; x", body: "a 1\n" }),
    slis: new SliMetrics({ startedAt: 0 }),
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

Deno.test("flagzPage() sorts flags, and removes possible secrets", () => {
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

const ROWS = [
  { path: "/healthz", body: "ok", checked: ["ping"] },
  { path: "/healthz/ping", body: "ok", checked: [] },
  { path: "/healthz?verbose", body: "[+]ping ok\nhealthz check passed\n", checked: ["ping"] },
  { path: "/healthz?exclude=ping", body: "ok", checked: [] },
  {
    path: "/healthz?verbose=1&exclude=ping",
    body: "[+]ping excluded: ok\nhealthz check passed\n",
    checked: [],
  },
  {
    path: "/healthz?verbose&exclude=no%22ne&exclude=log",
    body: '[+]ping ok\nwarn: no health check has the name "log", "no\\"ne"\nhealthz check passed\n',
    checked: ["ping"],
  },
];

for (const { path, body, checked } of ROWS) {
  Deno.test(`answerHealthz() answers ${path}`, async () => {
    const reported: string[] = [];
    const answer = answerHealthz(new URL(path, "http://localhost"), (name) => reported.push(name));
    assertEquals([answer.status, await answer.text()], [200, body]);
    assertEquals(answer.headers.get("content-type"), "text/plain; charset=utf-8");
    assertEquals(reported, checked);
  });
}

Deno.test("answerHealthz() answers 404 for an unknown check", () => {
  assertEquals(answerHealthz(new URL("http://localhost/healthz/other"), () => {}).status, 404);
});

const START = Date.UTC(2026, 0, 1);

Deno.test("statuszPage() reports build, start and paths", () => {
  const { fields, lines } = statuszPage({
    startedAt: START + 250,
    now: START + 250 + ((26 * 60 + 3) * 60 + 9) * 1000 + 999,
    version: "0.1.0",
    release: "1.36",
    runtime: "deno 2.9.0",
    paths: ["/healthz", "/metrics"],
  });
  assertEquals(fields, {
    startTime: "2026-01-01T00:00:00Z",
    uptimeSeconds: 93_789,
    goVersion: "deno 2.9.0",
    binaryVersion: "0.1.0",
    emulationVersion: "1.36",
    paths: ["/healthz", "/metrics"],
  });
  assertEquals(lines, [
    "Started: 2026-01-01T00:00:00Z",
    "Up: 26 hr 03 min 09 sec",
    "Runtime: deno 2.9.0",
    "Binary version: 0.1.0",
    "Emulation version: 1.36",
    "Paths: /healthz /metrics",
  ]);
});

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
