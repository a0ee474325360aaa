/**
 * The contract of kube-proxy's health checks, state by state, against the running server.
 *
 * @module
 */
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

/** Successive events, with the expected answers after each. */
interface Step {
  readonly name: string;
  readonly events?: readonly Event[];
  readonly healthz: 200 | 503;
  readonly livez: 200 | 503;
  /** Health of the families that are known. */
  readonly families?: Partial<Record<IpFamily, boolean>>;
  readonly nodeEligible?: boolean;
}

const BOTH = { IPv4: true, IPv6: true };
const AUTOSCALER = { taints: [{ key: "ToBeDeletedByClusterAutoscaler" }] };

/** One run, with a time-out of 10 s. The Node is known from the second step on. */
const TIMELINE: readonly Step[] = [
  { name: "nothing is known, no Node either", healthz: 503, livez: 200, nodeEligible: false },
  { name: "the Node is known", events: [{ node: {} }], healthz: 200, livez: 200 },
  {
    name: "both families synced",
    events: [{ update: "IPv4" }, { update: "IPv6" }],
    healthz: 200,
    livez: 200,
    families: BOTH,
  },
  { name: "25 s idle", events: [{ waitSeconds: 25 }], healthz: 200, livez: 200, families: BOTH },
  {
    name: "IPv4 was asked for just within the time-out",
    events: [{ request: "IPv4" }, { waitSeconds: 9.999 }],
    healthz: 200,
    livez: 200,
    families: BOTH,
  },
  {
    name: "IPv4 is at the time-out",
    events: [{ waitSeconds: 0.001 }],
    healthz: 503,
    livez: 503,
    families: { IPv4: false, IPv6: true },
  },
  {
    name: "IPv4 is late, and was asked for again",
    events: [{ waitSeconds: 15 }, { request: "IPv4" }],
    healthz: 503,
    livez: 503,
    families: { IPv4: false, IPv6: true },
  },
  {
    name: "both synced again",
    events: [{ update: "IPv4" }, { update: "IPv6" }],
    healthz: 200,
    livez: 200,
    families: BOTH,
  },
  {
    name: "IPv6 is late and IPv4 synced",
    events: [{ request: "IPv6" }, { waitSeconds: 25 }, { update: "IPv4" }],
    healthz: 503,
    livez: 503,
    families: { IPv4: true, IPv6: false },
  },
  {
    name: "IPv6 synced",
    events: [{ update: "IPv6" }],
    healthz: 200,
    livez: 200,
    families: BOTH,
  },
  {
    name: "both are late and one synced",
    events: [
      { request: "IPv4" },
      { request: "IPv6" },
      { waitSeconds: 25 },
      { update: "IPv6" },
    ],
    healthz: 503,
    livez: 503,
    families: { IPv4: false, IPv6: true },
  },
  { name: "all synced", events: [{ update: "IPv4" }], healthz: 200, livez: 200, families: BOTH },
  {
    name: "a taint without an effect",
    events: [{ node: { taints: [{ key: "other" }] } }],
    healthz: 200,
    livez: 200,
    families: BOTH,
  },
  {
    name: "the autoscaler's taint",
    events: [{ node: AUTOSCALER }],
    healthz: 503,
    livez: 200,
    families: BOTH,
    nodeEligible: false,
  },
  {
    name: "the autoscaler's taint, and IPv4 late",
    events: [{ request: "IPv4" }, { waitSeconds: 10 }],
    healthz: 503,
    livez: 503,
    families: { IPv4: false, IPv6: true },
    nodeEligible: false,
  },
  {
    name: "the taint is removed",
    events: [{ update: "IPv4" }, { node: { taints: [] } }],
    healthz: 200,
    livez: 200,
    families: BOTH,
  },
  {
    name: "the Node is being deleted",
    events: [{ node: { deletionTimestamp: "2026-01-01T00:00:00Z" } }],
    healthz: 503,
    livez: 200,
    families: BOTH,
    nodeEligible: false,
  },
  {
    name: "the Node is deleted: its last state stays",
    events: [{ waitSeconds: 3600 }],
    healthz: 503,
    livez: 200,
    families: BOTH,
    nodeEligible: false,
  },
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
  { families = {}, nodeEligible = true }: Step,
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
      (status.length > 0 ? `,"status":\\{${status.join(",")}\\}` : "") + "\\}$",
  );
}

async function checkAnswers(stage: ProxyServersStage, step: Step): Promise<void> {
  for (const path of ["healthz", "livez"] as const) {
    const { status, type, sniff, text } = await ask(stage, `/${path}`);
    assertEquals(status, step[path], `${path}: ${text}`);
    assertEquals([type, sniff], ["application/json", "nosniff"]);
    assertMatch(text, bodyPattern(path, step));
  }
}

Deno.test("/healthz and /livez go through upstream's timeline", async (t) => {
  await using stage = await startProxyServersStage({ timeoutMs: 10_000 });
  for (const step of TIMELINE) {
    const passed = await t.step(step.name, async () => {
      for (const event of step.events ?? []) await happen(stage, event);
      await checkAnswers(stage, step);
    });
    assert(passed, step.name);
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
