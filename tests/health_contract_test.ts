/** The contract of kube-proxy's health checks, state by state, against the running server. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { serviceLoop } from "./support/builders/builders.ts";
import type { IpFamily } from "../lib/net/ip_address.ts";
import {
  type ProxyServersStage,
  startProxyServersStage,
} from "./support/stages/proxy_servers_stage.ts";

/** What happens, and then: the codes of both paths, the health of known families, and the Node. */
interface Step {
  readonly name: string;
  readonly events: readonly string[];
  readonly healthz: number;
  readonly livez: number;
  readonly families: readonly (readonly [family: string, isGood: boolean])[];
  readonly nodeEligible: boolean;
}

/** One run, with a time-out of 10 s. The Node is known from the second step on. */
const TIMELINE: readonly Step[] = `
nothing is known, no Node either | - | 503 200 | - | ineligible
the Node is known | node {} | 200 200 | -
both families synced | update IPv4; update IPv6 | 200 200 | IPv4 good, IPv6 good
25 s idle | wait 25 | 200 200 | IPv4 good, IPv6 good
IPv4 was asked for just within the time-out | request IPv4; wait 9.999 | 200 200 | IPv4 good, IPv6 good
IPv4 is at the time-out | wait 0.001 | 503 503 | IPv4 late, IPv6 good
IPv4 is late, and was asked for again | wait 15; request IPv4 | 503 503 | IPv4 late, IPv6 good
both synced again | update IPv4; update IPv6 | 200 200 | IPv4 good, IPv6 good
IPv6 is late and IPv4 synced | request IPv6; wait 25; update IPv4 | 503 503 | IPv4 good, IPv6 late
IPv6 synced | update IPv6 | 200 200 | IPv4 good, IPv6 good
both are late and one synced | request IPv4; request IPv6; wait 25; update IPv6 | 503 503 | IPv4 late, IPv6 good
all synced | update IPv4 | 200 200 | IPv4 good, IPv6 good
a taint without an effect | node {"taints": [{"key": "other"}]} | 200 200 | IPv4 good, IPv6 good
the autoscaler's taint | node {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]} | 503 200 | IPv4 good, IPv6 good | ineligible
the autoscaler's taint, and IPv4 late | request IPv4; wait 10 | 503 503 | IPv4 late, IPv6 good | ineligible
the taint is removed | update IPv4; node {"taints": []} | 200 200 | IPv4 good, IPv6 good
the Node is being deleted | node {"deletionTimestamp": "2026-01-01T00:00:00Z"} | 503 200 | IPv4 good, IPv6 good | ineligible
the Node is deleted: its last state stays | wait 3600 | 503 200 | IPv4 good, IPv6 good | ineligible
`.trim().split("\n").map((line) => {
  const [name = "", events = "", codes = "", health = "", node] = line.split(" | ");
  const [healthz, livez] = codes.split(" ").map(Number) as [number, number];
  const families = health === "-" ? [] : health.split(", ").map((each) => {
    const [family = "", state] = each.split(" ");
    return [family, state === "good"] as const;
  });
  const nodeEligible = node !== "ineligible";
  return { name, events: events.split("; "), healthz, livez, families, nodeEligible };
});

/** `start IPv4`, `request IPv4`, `update IPv4`, `wait <seconds>`, `node <as JSON>` or `-`. */
async function happen({ clock, health }: ProxyServersStage, event: string): Promise<void> {
  const [, what, value = ""] = /^(\S+) ?(.*)$/.exec(event)!;
  const kind = ({ start: "started", request: "queued", update: "synced" } as const)[what!];
  if (kind !== undefined) health.on({ kind, loop: serviceLoop(value as IpFamily) });
  else if (what === "node") health.nodeSeen(JSON.parse(value));
  else if (what === "wait") await clock.advance(Number(value) * 1000);
  else assertEquals(event, "-");
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
  { families, nodeEligible }: Step,
): RegExp {
  const healthy = families.every(([, each]) => each);
  const status = families.map(([family, each]) =>
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
    assertEquals(status, step[path], `${path}: ${text}`);
    assertEquals([type, sniff], ["application/json", "nosniff"]);
    assertMatch(text, bodyPattern(path, step));
  }
}

Deno.test("/healthz and /livez go through upstream's timeline", async (t) => {
  await using stage = await startProxyServersStage({ timeoutMs: 10_000 });
  for (const step of TIMELINE) {
    const { name, events } = step;
    const passed = await t.step(name, async () => {
      for (const event of events) await happen(stage, event);
      await checkAnswers(stage, step);
    });
    assert(passed, name);
  }
});

/** `lastUpdated` of the whole body, with the answer given 25 s after the start. */
const LAST_UPDATED = `
now in a good answer | node {}; update IPv4; wait 25 | 2026-01-01T00:00:25.000Z
the newest of the families in a bad one | start IPv4; wait 1; update IPv6; request IPv4; wait 24 | 2026-01-01T00:00:01.000Z
Go's zero time in a bad one without any family | wait 25 | 0001-01-01T00:00:00Z
`.trim().split("\n").map((line) => line.split(" | "));

for (const [name, events = "", expect = ""] of LAST_UPDATED) {
  Deno.test(`/healthz returns as lastUpdated ${name}`, async () => {
    await using stage = await startProxyServersStage({ timeoutMs: 10_000 });
    for (const event of events.split("; ")) await happen(stage, event);
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
