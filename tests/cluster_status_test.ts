/**
 * `kube-relay status --cluster`: the state of every node, through an API server with nodes that answer,
 * fail, or answer rubbish.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { createHealthzHandler } from "../lib/health/healthz_server.ts";
import { ProxyHealth } from "../lib/health/proxy_health.ts";
import { ApiError } from "../lib/kube/api_error.ts";
import { ProxyMetrics } from "../lib/metrics/proxy_metrics.ts";
import { systemClock } from "../lib/os/clock.ts";
import { askCluster, clusterReport } from "../lib/tools/status/cluster_status.ts";
import { paintText } from "../lib/tools/report.ts";
import { writeKubeconfig } from "./support/builders/kubeconfig_file.ts";
import { runInProcess } from "./support/drivers/command_line.ts";
import { FakeApiServer, NODE_PROXIES } from "./support/fakes/fake_api_server.ts";
import { FakeClock, settle } from "./support/fakes/fake_clock.ts";
import { readManifest } from "./support/docs/deploy_files.ts";
import { withFolder } from "./support/with_folder.ts";

const METRICS_PORT = 10_249;
const NO_PROBLEM = { state: 0, sync: 0, quarantine: 0, source: 0, kernel: 0, service: 0 };

/** The answer of a node's health port. */
async function healthText(): Promise<string> {
  const clock = new FakeClock();
  const health = new ProxyHealth({ clock }, { timeoutMs: 10_000 });
  for (const controller of ["service", "routing"] as const) {
    for (const family of ["IPv4", "IPv6"] as const) {
      health.on({ kind: "synced", loop: { controller, family } });
    }
  }
  const options = { health, now: () => clock.wallNow(), phase: () => undefined };
  const handler = createHealthzHandler({ ...options, onAnswer: () => {} });
  return await handler(new Request("http://node/healthz")).text();
}

const HEALTHY = await healthText();
/** Of kube-proxy. */
const FOREIGN = HEALTHY.replace(/,"program":.*(?=\})/, "");

/** The metrics of a kube-relay with these problems. */
async function metricsText(problems: Partial<typeof NO_PROBLEM> = {}): Promise<string> {
  const metrics = new ProxyMetrics({ version: "0.1.0", mode: "nftables" });
  metrics.setProblems({ ...NO_PROBLEM, ...problems });
  for (const family of ["IPv4", "IPv6"] as const) {
    metrics.its["kube_relay_planned_service_ports"].set({ ip_family: family }, 60);
    metrics.syncSucceeded(family, {
      ...{ at: systemClock.wallNow() - 60_000, quarantined: 0, programmingSeconds: [] },
      noLocalEndpoints: { internal: 0, external: 0 },
    });
  }
  return (await metrics.render()).body;
}

/** What each node answers on its metrics port, and on its health port. */
type Answers = Readonly<
  Record<string, readonly (ReturnType<FakeApiServer["nodePort"]>)[]>
>;

async function withCluster(
  answers: Answers,
  test: (
    run: (...args: string[]) => ReturnType<typeof runInProcess>,
    api: FakeApiServer,
  ) => unknown,
): Promise<void> {
  await using api = await FakeApiServer.start();
  const create = (name: string, labels = {}) =>
    api.store.create({ apiVersion: "v1", kind: "Node", metadata: { name, labels } });
  for (const name of Object.keys(answers)) create(name);
  create("window", { "kubernetes.io/os": "windows" });
  api.nodePort = (node, port, path) => {
    assertEquals(path, port === METRICS_PORT ? "/metrics" : "/healthz");
    return answers[node]![port === METRICS_PORT ? 0 : 1];
  };
  await withFolder(async (folder) => {
    const file = `${folder}/kubeconfig`;
    await writeKubeconfig(file, {
      ...{ server: api.url, ca: api.ca, user: { token: api.rotateToken() } },
    });
    const process = { columns: 100 };
    await test(
      (...args) =>
        runInProcess(["status", "--cluster", `--kubeconfig=${file}`, ...args], { process }),
      api,
    );
  });
}

Deno.test("status --cluster shows every node, those with problems first", async () => {
  const refused = { status: 503, text: "503 not yet: waiting for the lock\n" };
  const answers: Answers = {
    "node-a": [{ text: await metricsText() }],
    "node-b": [{ text: await metricsText({ quarantine: 2, service: 1 }) }],
    "node-c": [{ text: '# TYPE kubeproxy_x gauge\nkubeproxy_x{a="b"} 1\n' }],
    "node-d": [{ text: "<html>\x1b[2J" }],
    "node-e": [undefined, { text: HEALTHY }],
    "node-f": [refused, { status: 503, text: HEALTHY }],
    "node-g": [],
    "node-h": [{ text: await metricsText({ state: 1 }) }],
  };
  await withCluster(answers, async (run) => {
    const { code, out, err } = await run();
    assertEquals([code, err], [0, ""]);
    assertEquals(
      out.replaceAll(/1m\d+s ago/g, "1m ago  ").replaceAll(/ +$/gm, ""),
      `kube-relay on 8 nodes
State     1 healthy, 1 not serving, 1 other program, 1 unhealthy, 2 no answer, 2 serving
Problems  on 6 nodes
Versions  3 v0.1.0 nftables

NODE    STATE          MODE      PORTS  LAST SYNC  PROBLEMS
node-b  serving        nftables  120    1m ago     2 quarantine, 1 service
node-c  other program                              the metrics port is that of another program, such
                                                   as kube-proxy
node-d  no answer                                  the answer of the metrics port is no text of
                                                   Prometheus
node-f  unhealthy                                  503: 503 not yet: waiting for the lock
node-g  no answer                                  503 ServiceUnavailable: error trying to reach
                                                   service: dial tcp 192.0.2.1:10249: connect:
                                                   refused
node-h  not serving    nftables  120    1m ago     1 state
node-a  serving        nftables  120    1m ago
node-e  healthy                                    503 ServiceUnavailable: error trying to reach
                                                   service: dial tcp 192.0.2.1:10249: connect:
                                                   refused
`,
    );
    const { err: unknown } = await run("--context=far");
    assertStringIncludes(unknown, "--context is 'far', and its contexts are: 'context'");
    const problems = await run("--context=context", "--problems", "--check");
    assertEquals(problems.code, 1);
    assertEquals(/^node-[ae]/m.test(problems.out), false, problems.out);
    const json = JSON.parse((await run("--json")).out);
    assertEquals(json.apiVersion, "kube-relay/v1");
    assertEquals(
      json.nodes.map(({ node }: { node: string }) => node).join(),
      Object.keys(answers).join(),
    );
    const { lastSync, ...second } = json.nodes[1];
    assert(Date.parse(lastSync) < systemClock.wallNow());
    assertEquals(second, {
      ...{ node: "node-b", state: "serving", version: "0.1.0", mode: "nftables" },
      ...{ servicePorts: 120, problems: { quarantine: 2, service: 1 } },
    });
  });
});

Deno.test("status --cluster knows that the clock of a node is ahead", async () => {
  const text = (await metricsText()).replaceAll(
    /^(kubeproxy_sync_proxy_rules_last_timestamp_seconds\{.*\}) .*$/gm,
    "$1 8e12",
  );
  await withCluster({ "node-a": [{ text }] }, async (run) => {
    assertStringIncludes((await run()).out, "  120    in the future");
  });
});

Deno.test("status --cluster knows kube-proxy by its health port", async () => {
  const answers = {
    "node-a": [undefined, { text: FOREIGN }],
    "node-b": [undefined, { text: "{}" }],
  };
  await withCluster({
    ...answers,
    "node-c": [undefined, { text: FOREIGN, status: 503 }],
  }, async (run) => {
    const { code, out } = await run("--check", "--json");
    assertEquals(code, 1);
    const { nodes } = JSON.parse(out) as { readonly nodes: readonly { readonly state: string }[] };
    assertEquals(nodes.map(({ state }) => state), ["other program", "no answer", "other program"]);
  });
});

Deno.test("status --cluster --check exits with 0 if every node is well, and 1 without nodes", async () => {
  const text = await metricsText();
  await withCluster(
    { "node-a": [{ text }], "node-b": [undefined, { text: HEALTHY }] },
    async (run) => assertEquals((await run("--check")).code, 0),
  );
  await withCluster({}, async (run) => {
    const { code, out } = await run("--check");
    assertEquals(code, 1);
    assertStringIncludes(out, "the cluster has no node");
  });
});

Deno.test("status --cluster says what is missing if it may not ask", async () => {
  await withCluster({ "node-a": [{ text: await metricsText() }] }, async (run, api) => {
    api.setMissing(NODE_PROXIES, 403);
    const forbidden = await run();
    assertEquals([forbidden.code, forbidden.out], [1, ""]);
    assertStringIncludes(forbidden.err, "needs the right to get nodes/proxy");
    api.setMissing("/api/v1/nodes", 403);
    const unlisted = await run();
    assertEquals([unlisted.code, unlisted.out], [1, ""]);
    assertStringIncludes(unlisted.err, "/api/v1/nodes: 403 Forbidden");
  });
});

Deno.test("status --cluster finds the kubeconfig as kubectl does", async () => {
  await withCluster({ "node-a": [{ text: await metricsText() }] }, async (_, api) => {
    await withFolder(async (home) => {
      await Deno.mkdir(`${home}/.kube`);
      const content = { server: api.url, ca: api.ca, user: { token: api.rotateToken() } };
      await writeKubeconfig(`${home}/.kube/config`, content);
      const run = async (values: Readonly<Record<string, string>>) => {
        const env = (name: string) => values[name];
        return await runInProcess(["status", "--cluster"], { process: { env, uid: 1000 } });
      };
      assertStringIncludes((await run({ HOME: home })).out, "kube-relay on 1 node\n");
      const named = await run({ HOME: "/nowhere", KUBECONFIG: `${home}/.kube/config` });
      assertEquals([named.code, named.err], [0, ""]);
      const missing = await run({ HOME: "/nowhere" });
      assertEquals(missing.code, 1);
      assertStringIncludes(missing.err, "/nowhere/.kube/config");
      const unknown = await run({ XDG_RUNTIME_DIR: home });
      assertEquals(unknown.code, 1);
      assertStringIncludes(unknown.err, "Cannot find the API server");
    });
  });
});

Deno.test("the role for status --cluster has the rights that it uses, and no others", async () => {
  const [role, ...others] = await readManifest("monitoring/cluster-status-rbac.yaml");
  assertEquals(others, []);
  assertEquals((role as unknown as { readonly rules: unknown }).rules, [
    { apiGroups: [""], resources: ["nodes"], verbs: ["list"] },
    { apiGroups: [""], resources: ["nodes/proxy"], verbs: ["get"] },
  ]);
  await withCluster({ "node-a": [{ text: await metricsText() }] }, async (run, api) => {
    await run();
    const asked = api.requests.map(({ method, path }) => `${method} ${path}`);
    assertEquals(asked, [
      "GET /api/v1/nodes",
      "GET /api/v1/nodes/http:node-a:10249/proxy/metrics",
    ]);
  });
});

for (const flag of ["--watch", "--changes", "--filter=a", "--from=a.json"]) {
  Deno.test(`status --cluster refuses ${flag}`, async () => {
    const { code, err } = await runInProcess(["status", "--cluster", flag]);
    assertEquals(code, 2);
    assertStringIncludes(err, `Flag ${flag.split("=")[0]} cannot be used with --cluster`);
  });
}

type Reader = Parameters<typeof askCluster>[0]["client"];

/** A cluster of `count` nodes whose answers are those of `answer`, with counts of the requests. */
function manyNodes(count: number, answer: (path: string, signal: AbortSignal) => Promise<string>) {
  const seen = { lists: 0, requests: 0, most: 0, open: 0 };
  const client: Reader = {
    listPage({ limit = 0, continue: token }, onItem) {
      seen.lists++;
      const start = Number(token ?? 0);
      const end = Math.min(count, start + limit);
      for (let node = start; node < end; node++) onItem({ metadata: { name: `node-${node}` } });
      return Promise.resolve({
        resourceVersion: "1",
        continue: end < count ? String(end) : undefined,
      });
    },
    async readLines({ path, signal }, onLine) {
      seen.requests++;
      seen.most = Math.max(seen.most, ++seen.open);
      try {
        for (const line of (await answer(path, signal)).split("\n")) onLine(line);
        return 200;
      } finally {
        seen.open--;
      }
    },
  };
  return { client, seen };
}

const PORTS = {
  metricsPort: METRICS_PORT,
  healthPort: 10_256,
  signal: new AbortController().signal,
};

Deno.test("askCluster() asks each of 1,000 nodes once, 50 at a time, in pages of 100", async () => {
  const texts = [await metricsText(), await metricsText({ sync: 1 })];
  const { client, seen } = manyNodes(1000, async (path) => {
    await Promise.resolve();
    return texts[Number(/node-\d*7:/.test(path))]!;
  });
  const nodes = await askCluster({ clock: new FakeClock(), client }, PORTS);
  assertEquals(seen, { lists: 10, requests: 1000, most: 50, open: 0 });
  assertEquals(nodes.length, 1000);
  const text = (show: "all" | "few" | "problems") =>
    paintText(clusterReport(nodes, { time: () => "now", show }));
  const rows = (shown: string) => shown.match(/^node-/gm)?.length ?? 0;
  assertStringIncludes(text("few"), "Problems   on 100 nodes\n");
  assertStringIncludes(text("few"), "970 nodes: --all lists them\n");
  assertEquals((["few", "problems", "all"] as const).map((show) => rows(text(show))), [
    30,
    100,
    1000,
  ]);
});

Deno.test("askCluster() waits 5 s for a silent node, for both of its ports together", async () => {
  const clock = new FakeClock();
  const text = await metricsText();
  const { client, seen } = manyNodes(3, (path, signal) => {
    if (path.includes("node-0")) return Promise.resolve(text);
    const isHealth = path.endsWith("/healthz");
    if (path.includes("node-1") && !isHealth) return Promise.reject(new Error("refused"));
    return new Promise((_, reject) =>
      signal.addEventListener("abort", () => reject(signal.reason), { once: true })
    );
  });
  const asking = askCluster({ clock, client }, PORTS);
  let isDone = false;
  const done = asking.finally(() => isDone = true);
  await settle();
  await clock.advance(4999);
  assertEquals(isDone, false);
  await clock.advance(1);
  assertEquals((await done).map(({ state, reason }) => [state, reason]), [
    ["serving", undefined],
    ["no answer", "refused"],
    ["no answer", "no answer within 5 s"],
  ]);
  assertEquals(seen.requests, 4, "the health port of a silent node is not asked");
});

Deno.test("askCluster() reports its progress while nodes are silent", async () => {
  const clock = new FakeClock();
  const { client } = manyNodes(
    150,
    (_, signal) =>
      new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason), { once: true })
      ),
  );
  const reports: string[] = [];
  const onProgress = (asked: number, all: number) => void reports.push(`${asked} of ${all}`);
  const asking = askCluster({ clock, client }, { ...PORTS, onProgress });
  for (let second = 0; second < 15; second++) {
    await settle();
    await clock.advance(1000);
  }
  assertEquals((await asking).length, 150);
  assertEquals(reports, ["100 of 150"]);
  await clock.advance(60_000);
  assertEquals(reports.length, 1, "none after its end");
});

Deno.test("askCluster() stops if it is aborted", async () => {
  const ending = new AbortController();
  const { client } = manyNodes(
    60,
    (_, signal) =>
      new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason), { once: true })
      ),
  );
  const asking = askCluster({ clock: new FakeClock(), client }, {
    ...PORTS,
    signal: ending.signal,
  });
  await settle();
  ending.abort(new Error("enough"));
  await assertRejects(() => asking, Error, "enough");
});

for (
  const [what, line] of [
    ["a number of ports that is none", 'kube_relay_planned_service_ports{ip_family="IPv4"} NaN'],
    ["numbers that are none", 'kube_relay_problems{kind="sync"} x'],
    [
      "a date that is none",
      'kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 9e99',
    ],
    ["an unknown kind", 'kube_relay_problems{kind="__proto__"} 1'],
    ["labels without values", `kube_relay_problems{${"a".repeat(60_000)}} 1`],
    ["labels that do not end", `kube_relay_problems{kind="${"a".repeat(60_000)} 1`],
  ] as const
) {
  Deno.test(`askCluster() bears ${what}`, async () => {
    const text = `# TYPE x gauge\nkube_relay_build_info{version="\u001b[2J",mode="m"} 1\n${line}\n`;
    const { client } = manyNodes(1, () => Promise.resolve(text));
    const nodes = await askCluster({ clock: new FakeClock(), client }, PORTS);
    assertEquals(nodes, [
      {
        ...{ node: "node-0", state: "serving", version: "\u001b[2J", mode: "m" },
        servicePorts: 0,
        problems: {},
      },
    ]);
    const shown = paintText(clusterReport(nodes, { time: String, show: "all" }));
    assertEquals(shown.includes("\u001b"), false);
  });
}

Deno.test("askCluster() rejects only if every node is forbidden", async () => {
  const forbidden = new ApiError("Cannot read x: 403 Forbidden", { status: 403 });
  const text = await metricsText();
  const { client } = manyNodes(
    2,
    (path) => path.includes("node-1") ? Promise.reject(forbidden) : Promise.resolve(text),
  );
  const nodes = await askCluster({ clock: new FakeClock(), client }, PORTS);
  assertEquals(nodes.map(({ state }) => state), ["serving", "no answer"]);
});
