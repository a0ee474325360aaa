/** The contract of kube-proxy's metrics port, path by path, against the running server. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { BACKEND_MODES } from "../lib/proxy/backend.ts";
import {
  type ProxyServersStage,
  startProxyServersStage,
} from "./support/stages/proxy_servers_stage.ts";

const TEXT = "text/plain; charset=utf-8";
const PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8";
const JSON_TYPE = "application/json";
const FLAGZ = "application/json;g=config.k8s.io;v=v1beta1;as=Flagz";
const STATUSZ = "application/json;g=config.k8s.io;v=v1beta1;as=Statusz";

/** A request, and the answer that it has to get. */
interface Row {
  readonly method?: string;
  readonly path: string;
  readonly send?: string;
  readonly accept?: string;
  readonly status?: number;
  readonly type?: string;
  /** The body, or a pattern that it must match. */
  readonly body?: string | RegExp;
}

/** Paths that every client may request. */
const PATHS: readonly Row[] = [
  { path: "/metrics", type: PROMETHEUS, body: /^# HELP \w+ [^]*\nkube_relay_build_info\{/m },
  {
    path: "/metrics",
    accept: "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
    type: PROMETHEUS,
  },
  { path: "/metrics", method: "HEAD", type: PROMETHEUS, body: "" },
  { path: "/metrics", method: "POST", status: 405, type: TEXT },
  { path: "/metrics/slis", type: PROMETHEUS, body: /^process_start_time_seconds \d/m },
  { path: "/metrics/slis", method: "DELETE", type: TEXT, body: "metrics reset\n" },
  { path: "/metrics/slis", method: "PUT", send: "1", status: 405, type: TEXT },
  { path: "/metrics/", status: 404, type: TEXT },
  { path: "/healthz", type: TEXT, body: "ok" },
  { path: "/healthz", method: "POST", type: TEXT, body: "ok" },
  { path: "/healthz?verbose", type: TEXT, body: "[+]ping ok\nhealthz check passed\n" },
  {
    path: "/healthz?verbose&exclude=ping",
    type: TEXT,
    body: "[+]ping excluded: ok\nhealthz check passed\n",
  },
  {
    path: "/healthz?verbose&exclude=no%22ne&exclude=log",
    type: TEXT,
    body: '[+]ping ok\nwarn: no health check has the name "log", "no\\"ne"\nhealthz check passed\n',
  },
  { path: "/healthz/ping", type: TEXT, body: "ok" },
  { path: "/healthz/log", status: 404, type: TEXT },
  { path: "/livez", status: 404, type: TEXT },
  { path: "/proxyMode", type: TEXT, body: "iptables" },
  { path: "/proxyMode", method: "DELETE", type: TEXT, body: "iptables" },
  {
    path: "/configz",
    type: JSON_TYPE,
    body:
      /^\{"kubeproxy\.config\.k8s\.io":\{.*"apiVersion":"kubeproxy\.config\.k8s\.io\/v1alpha1".*\}\}$/,
  },
  { path: "/configz", type: JSON_TYPE, body: /"kind":"KubeProxyConfiguration"/ },
  { path: "/configz", type: JSON_TYPE, body: /"configSyncPeriod":"15m0s"/ },
  { path: "/configz", method: "POST", status: 405, type: TEXT },
  { path: "/flagz", type: TEXT, body: /^kube-proxy flagz\n[^]*\noom-score-adj=-999\n/ },
  {
    path: "/flagz",
    accept: FLAGZ,
    type: JSON_TYPE,
    body:
      /^\{"kind":"Flagz","apiVersion":"config.k8s.io\/v1beta1","metadata":\{"name":"kube-proxy"\},"flags":\{.*"oom-score-adj":"-999"/,
  },
  { path: "/flagz", accept: JSON_TYPE, status: 406, type: TEXT },
  { path: "/flagz", method: "POST", status: 405, type: TEXT },
  { path: "/statusz", type: TEXT, body: /^kube-proxy statusz\n[^]*\nUp: 0 hr 00 min 00 sec\n/ },
  {
    path: "/statusz",
    accept: STATUSZ,
    type: JSON_TYPE,
    body: /^\{"kind":"Statusz".*"startTime":"2026-01-01T00:00:00Z","uptimeSeconds":0,.*"paths":\[/,
  },
  { path: "/statusz", accept: FLAGZ, status: 406, type: TEXT },
  { path: "/debug/pprof/", status: 404, type: TEXT, body: /^[^\n]*no Go program\n$/ },
  { path: "/debug/pprof/profile?seconds=30", status: 404, type: TEXT, body: /no Go program\n$/ },
  { path: "/debug/flags/v", method: "PUT", send: "4", status: 404, type: TEXT },
  { path: "/", status: 404, type: TEXT },
  { path: "/status", status: 404, type: TEXT },
  { path: "/dump", status: 404, type: TEXT },
  { path: "//metrics", status: 404, type: TEXT },
];

/** Paths that --profiling adds; the tests are on this machine. */
const PROFILING_PATHS: readonly Row[] = [
  { path: "/debug/flags/v", method: "PUT", send: "4", type: TEXT },
  { path: "/debug/flags/v", method: "PUT", send: "four", status: 400, type: TEXT },
  { path: "/debug/flags/v", method: "GET", status: 406, type: TEXT },
  { path: "/debug/flags/v", method: "POST", send: "4", status: 406, type: TEXT },
  { path: "/debug/pprof/", status: 404, type: TEXT, body: /no Go program\n$/ },
];

/** Paths that the feature gates remove. */
const GATED_PATHS: readonly Row[] = [
  { path: "/flagz", status: 404, type: TEXT },
  { path: "/statusz", status: 404, type: TEXT },
];

async function ask(
  { metricsPort }: ProxyServersStage,
  { path, method = "GET", send, accept }: Row,
) {
  return await fetch(`http://127.0.0.1:${metricsPort}${path}`, {
    method,
    headers: accept === undefined ? {} : { accept },
    ...(send !== undefined && { body: send }),
  });
}

async function checkRow(stage: ProxyServersStage, row: Row): Promise<void> {
  const answer = await ask(stage, row);
  const body = await answer.text();
  assertEquals(answer.status, row.status ?? 200, body);
  if (row.type) assertEquals(answer.headers.get("content-type"), row.type);
  assertEquals(answer.headers.get("x-content-type-options"), "nosniff");
  assertEquals(answer.headers.get("access-control-allow-origin"), null);
  if (row.body instanceof RegExp) assertMatch(body, row.body);
  else if (row.body !== undefined) assertEquals(body, row.body);
}

const SUITES = [
  { name: "as it is by default", args: [], rows: PATHS },
  { name: "with --profiling", args: ["--profiling"], rows: PROFILING_PATHS },
  {
    name: "without the gates of its pages",
    args: ["--feature-gates=ComponentFlagz=false,ComponentStatusz=false"],
    rows: GATED_PATHS,
  },
];

for (const { name, args, rows } of SUITES) {
  Deno.test(`metrics port ${name}`, async (t) => {
    await using stage = await startProxyServersStage({ args });
    for (const row of rows) {
      const { method = "GET", path, accept } = row;
      const what = `${method} ${path}${accept ? ` (${accept})` : ""}`;
      assert(await t.step(what, () => checkRow(stage, row)), what);
    }
  });
}

Deno.test("/proxyMode of the metrics port names the mode in use", async () => {
  for (const mode of BACKEND_MODES) {
    await using stage = await startProxyServersStage({ mode });
    assertEquals(await (await ask(stage, { path: "/proxyMode" })).text(), mode);
  }
});

Deno.test("/metrics/slis of the metrics port counts the checks of /healthz, until DELETE", async () => {
  await using stage = await startProxyServersStage();
  const slis = async () => {
    const text = await (await ask(stage, { path: "/metrics/slis" })).text();
    return text.split("\n").filter((line) => line.startsWith("kubernetes_healthcheck"));
  };
  assertEquals(await slis(), []);
  for (let times = 0; times < 2; times++) await (await ask(stage, { path: "/healthz" })).text();
  assertEquals(await slis(), [
    'kubernetes_healthcheck{name="ping",type="healthz"} 1',
    'kubernetes_healthchecks_total{name="ping",type="healthz",status="success"} 2',
  ]);
  await (await ask(stage, { path: "/metrics/slis", method: "DELETE" })).text();
  assertEquals(await slis(), []);
});

Deno.test("/debug/flags/v of the metrics port changes the verbosity of the log", async () => {
  await using stage = await startProxyServersStage({ args: ["--profiling"] });
  for (const send of ["4", "0"]) {
    await (await ask(stage, { path: "/debug/flags/v", method: "PUT", send })).text();
  }
  assertEquals(stage.verbosities, [4, 0]);
});

Deno.test("/flagz of the metrics port shows no password of a URL", async () => {
  await using stage = await startProxyServersStage({
    args: ["--master=https://admin:hunter2@10.0.0.1:6443"],
  });
  const text = await (await ask(stage, { path: "/flagz" })).text();
  assertMatch(text, /^master=https:\/\/.*@10\.0\.0\.1:6443$/m);
  assertEquals(text.includes("hunter2"), false);
});

Deno.test("metrics port shows the configuration that is in force, not that of the start", async () => {
  await using stage = await startProxyServersStage();
  stage.current.proxy = { ...stage.current.proxy, clusterCIDR: "10.77.0.0/16" };
  for (const [path, text] of [["/configz", '"clusterCIDR":"10.77.0.0/16"'], ["/flagz", "10.77"]]) {
    const answer = await ask(stage, { path: path! });
    assertStringIncludes(await answer.text(), text!);
  }
});
