/** The contract of kube-proxy's health checks, state by state, against the running server. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { serviceLoop } from "./support/builders/builders.ts";
import type { NodeEligibility } from "../lib/health/proxy_health.ts";
import type { IpFamily } from "../lib/net/ip_address.ts";
import {
  type ProxyServersStage,
  startProxyServersStage,
} from "./support/stages/proxy_servers_stage.ts";

/** One thing that happens. */
type Event =
  | { readonly start: IpFamily }
  | { readonly request: IpFamily }
  | { readonly update: IpFamily }
  | { readonly node: NodeEligibility }
  | { readonly waitSeconds: number };

/** What happens, and then: the codes of both paths, the health of known families, and the Node. */
type Step = readonly [
  name: string,
  events: readonly Event[],
  healthz: 200 | 503,
  livez: 200 | 503,
  families: Partial<Record<IpFamily, boolean>>,
  nodeEligible?: boolean,
];

const UNKNOWN = {};
const BOTH = { IPv4: true, IPv6: true };
const LATE_IPV4 = { IPv4: false, IPv6: true };
const LATE_IPV6 = { IPv4: true, IPv6: false };
const AUTOSCALER = { taints: [{ key: "ToBeDeletedByClusterAutoscaler" }] };

/** One run, with a time-out of 10 s. The Node is known from the second step on. */
const TIMELINE: readonly Step[] = [
  ["nothing is known, no Node either", [], 503, 200, UNKNOWN, false],
  ["the Node is known", [{ node: {} }], 200, 200, UNKNOWN],
  ["both families synced", [{ update: "IPv4" }, { update: "IPv6" }], 200, 200, BOTH],
  ["25 s idle", [{ waitSeconds: 25 }], 200, 200, BOTH],
  [
    "IPv4 was asked for just within the time-out",
    [{ request: "IPv4" }, { waitSeconds: 9.999 }],
    200,
    200,
    BOTH,
  ],
  ["IPv4 is at the time-out", [{ waitSeconds: 0.001 }], 503, 503, LATE_IPV4],
  [
    "IPv4 is late, and was asked for again",
    [{ waitSeconds: 15 }, { request: "IPv4" }],
    503,
    503,
    LATE_IPV4,
  ],
  ["both synced again", [{ update: "IPv4" }, { update: "IPv6" }], 200, 200, BOTH],
  [
    "IPv6 is late and IPv4 synced",
    [{ request: "IPv6" }, { waitSeconds: 25 }, { update: "IPv4" }],
    503,
    503,
    LATE_IPV6,
  ],
  ["IPv6 synced", [{ update: "IPv6" }], 200, 200, BOTH],
  [
    "both are late and one synced",
    [{ request: "IPv4" }, { request: "IPv6" }, { waitSeconds: 25 }, { update: "IPv6" }],
    503,
    503,
    LATE_IPV4,
  ],
  ["all synced", [{ update: "IPv4" }], 200, 200, BOTH],
  ["a taint without an effect", [{ node: { taints: [{ key: "other" }] } }], 200, 200, BOTH],
  ["the autoscaler's taint", [{ node: AUTOSCALER }], 503, 200, BOTH, false],
  [
    "the autoscaler's taint, and IPv4 late",
    [{ request: "IPv4" }, { waitSeconds: 10 }],
    503,
    503,
    LATE_IPV4,
    false,
  ],
  ["the taint is removed", [{ update: "IPv4" }, { node: { taints: [] } }], 200, 200, BOTH],
  [
    "the Node is being deleted",
    [{ node: { deletionTimestamp: "2026-01-01T00:00:00Z" } }],
    503,
    200,
    BOTH,
    false,
  ],
  ["the Node is deleted: its last state stays", [{ waitSeconds: 3600 }], 503, 200, BOTH, false],
];

async function happen({ clock, health }: ProxyServersStage, event: Event): Promise<void> {
  if ("start" in event) health.on({ kind: "started", loop: serviceLoop(event.start) });
  else if ("request" in event) health.on({ kind: "queued", loop: serviceLoop(event.request) });
  else if ("update" in event) health.on({ kind: "synced", loop: serviceLoop(event.update) });
  else if ("node" in event) health.nodeSeen(event.node);
  else await clock.advance(event.waitSeconds * 1000);
}

async function ask({ healthzPort }: ProxyServersStage, path: string, method = "GET") {
  const answer = await fetch(`http://127.0.0.1:${healthzPort}${path}`, { method });
  const type = answer.headers.get("content-type");
  const sniff = answer.headers.get("x-content-type-options");
  return { status: answer.status, type, sniff, text: await answer.text() };
}

const TIME = "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?Z";

/** The whole body of an answer, key by key, in order. */
function bodyPattern(
  path: "healthz" | "livez",
  [, , , , families, nodeEligible = true]: Step,
): RegExp {
  const entries = Object.entries(families);
  const healthy = entries.every(([, each]) => each);
  const status = entries.map(([family, each]) =>
    `"${family}":\\{"lastUpdated":"${TIME}","healthy":${each}\\}`
  );
  return new RegExp(
    `^\\{"lastUpdated":"${TIME}","currentTime":"${TIME}",` +
      (path === "healthz" ? `"nodeEligible":${nodeEligible},` : "") +
      `"healthy":${healthy}` +
      (status.length > 0 ? `,"status":\\{${status.join(",")}\\}` : "") +
      ',"program":"kube-relay"\\}$',
  );
}

async function checkAnswers(stage: ProxyServersStage, step: Step): Promise<void> {
  for (const path of ["healthz", "livez"] as const) {
    const { status, type, sniff, text } = await ask(stage, `/${path}`);
    assertEquals(status, path === "healthz" ? step[2] : step[3], `${path}: ${text}`);
    assertEquals([type, sniff], ["application/json", "nosniff"]);
    assertMatch(text, bodyPattern(path, step));
  }
}

Deno.test("/healthz and /livez go through upstream's timeline", async (t) => {
  await using stage = await startProxyServersStage({ timeoutMs: 10_000 });
  for (const step of TIMELINE) {
    const [name, events] = step;
    const passed = await t.step(name, async () => {
      for (const event of events) await happen(stage, event);
      await checkAnswers(stage, step);
    });
    assert(passed, name);
  }
});

/** `lastUpdated` of the whole body, with the answer given 25 s after the start. */
const LAST_UPDATED: readonly {
  readonly name: string;
  readonly events: readonly Event[];
  readonly expect: string;
}[] = [
  {
    name: "now in a good answer",
    events: [{ node: {} }, { update: "IPv4" }, { waitSeconds: 25 }],
    expect: "2026-01-01T00:00:25.000Z",
  },
  {
    name: "the newest of the families in a bad one",
    events: [
      { start: "IPv4" },
      { waitSeconds: 1 },
      { update: "IPv6" },
      { request: "IPv4" },
      { waitSeconds: 24 },
    ],
    expect: "2026-01-01T00:00:01.000Z",
  },
  {
    name: "Go's zero time in a bad one without any family",
    events: [{ waitSeconds: 25 }],
    expect: "0001-01-01T00:00:00Z",
  },
];

for (const { name, events, expect } of LAST_UPDATED) {
  Deno.test(`/healthz returns as lastUpdated ${name}`, async () => {
    await using stage = await startProxyServersStage({ timeoutMs: 10_000 });
    for (const event of events) await happen(stage, event);
    const { lastUpdated, currentTime } = JSON.parse((await ask(stage, "/healthz")).text);
    assertEquals([lastUpdated, currentTime], [expect, "2026-01-01T00:00:25.000Z"]);
  });
}

Deno.test("the health port answers any method on its two paths, and 404 on others", async () => {
  await using stage = await startProxyServersStage();
  const rows: readonly (readonly [method: string, path: string, status: number])[] = [
    ["POST", "/livez", 200],
    ["DELETE", "/livez?verbose", 200],
    ["HEAD", "/livez", 200],
    ["PUT", "/healthz", 503],
    ["GET", "/", 404],
    ["GET", "/livez/", 404],
    ["GET", "/healthz/ping", 404],
    ["GET", "/metrics", 404],
    ["GET", "/proxyMode", 404],
  ];
  for (const [method, path, expect] of rows) {
    const { status, sniff } = await ask(stage, path, method);
    assertEquals([status, sniff], [expect, "nosniff"], `${method} ${path}`);
  }
});

Deno.test("the health port answers from the first moment, and names the phase", async () => {
  await using stage = await startProxyServersStage();
  stage.phase = "waiting for objects";
  const { status, text } = await ask(stage, "/livez");
  assertEquals([status, JSON.parse(text).phase], [200, "waiting for objects"]);
});

Deno.test("the answers of the health port are counted by their codes", async () => {
  await using stage = await startProxyServersStage();
  for (const path of ["/healthz", "/livez", "/livez"]) await ask(stage, path);
  const metrics = await (await fetch(`http://127.0.0.1:${stage.metricsPort}/metrics`)).text();
  const counters = metrics.split("\n").filter((line) => /^kubeproxy_proxy_\w+_total\{/.test(line));
  assertEquals(counters.sort(), [
    'kubeproxy_proxy_healthz_total{code="200"} 0',
    'kubeproxy_proxy_healthz_total{code="503"} 1',
    'kubeproxy_proxy_livez_total{code="200"} 2',
    'kubeproxy_proxy_livez_total{code="503"} 0',
  ]);
});
