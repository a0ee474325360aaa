/**
 * Compares the metrics of kube-proxy 1.36, transcribed as data, with the served ones: of a running
 * kube-relay, and in the other modes of the parts of their metrics.
 */
import { assert, assertEquals } from "@std/assert";
import { hasMetric, METRICS, PROBLEM_KINDS } from "../lib/metrics/metric_table.ts";
import { METRIC_ROWS, seriesBound } from "./support/metric_rows.ts";
import { ProxyMetrics } from "../lib/metrics/proxy_metrics.ts";
import { BACKEND_MODES, type BackendMode, MODE_TRAITS } from "../lib/proxy/backend.ts";
import { statusProblems } from "../lib/tools/status/status_answer.ts";
import { ServiceTrafficTable } from "../lib/proxy/service_traffic.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";
import { servicePort, writeServiceManifest } from "./bench/service_manifest.ts";
import { readToEnd, TcpServer, writeFully } from "./support/drivers/tcp_peers.ts";
import { PolicyRelay } from "./support/stages/policy_relay.ts";

/** One line with a value. */
interface PrometheusSample {
  /** With `_bucket`, `_sum` or `_count` for parts of a histogram. */
  readonly name: string;
  readonly labels: ReadonlyMap<string, string>;
  readonly value: number;
}

/** One metric. */
interface PrometheusMetric {
  readonly type: string;
  readonly samples: readonly PrometheusSample[];
}

const COMMENT = /^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$/;
const SAMPLE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (-?(?:[\d.]+(?:e[+-]?\d+)?|Inf|NaN))$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)/gy;

/** Metrics by name. Throws an Error that names the first line of another format. */
function parsePrometheusText(text: string): ReadonlyMap<string, PrometheusMetric> {
  const metrics = new Map<string, PrometheusMetric & { readonly samples: PrometheusSample[] }>();
  let current = "";
  for (const line of text.split("\n")) {
    if (line === "") continue;
    const [, comment, name = "", rest = ""] = COMMENT.exec(line) ?? [];
    if (comment === "HELP") continue;
    if (comment === "TYPE") {
      if (metrics.has(name)) throw new Error(`Cannot read metrics: a second TYPE of ${name}`);
      metrics.set(name, { type: rest, samples: [] });
      current = name;
      continue;
    }
    const sample = parseSample(line);
    const part = sample.name.slice(current.length);
    const metric = metrics.get(current);
    const isPart = part === "" ||
      (metric?.type === "histogram" && ["_bucket", "_sum", "_count"].includes(part));
    if (!metric || !sample.name.startsWith(current) || !isPart) {
      throw new Error(`Cannot read metrics: '${line}' does not follow its TYPE`);
    }
    metric.samples.push(sample);
  }
  return metrics;
}

function parseSample(line: string): PrometheusSample {
  const [, name, labelText = "", value] = SAMPLE.exec(line) ?? [];
  if (name === undefined) throw new Error(`Cannot read metrics: '${line}'`);
  const labels = [...labelText.matchAll(LABEL)];
  if (labels.map(([text]) => text).join("") !== labelText) {
    throw new Error(`Cannot read metrics: labels of '${line}'`);
  }
  return {
    name,
    labels: new Map(labels.map(([, label, text]) => [label!, text!])),
    value: Number(value!.replace("Inf", "Infinity")),
  };
}

/** Names of labels over all samples, without the `le` of buckets, sorted. */
function labelNames({ samples }: PrometheusMetric): readonly string[] {
  const names = new Set(samples.flatMap(({ labels }) => [...labels.keys()]));
  names.delete("le");
  return [...names].sort();
}

/** The bounds of the buckets of each series of a histogram, as they are written. */
function bucketBounds({ samples }: PrometheusMetric): readonly (readonly string[])[] {
  const bounds = new Map<string, string[]>();
  for (const { labels } of samples) {
    const le = labels.get("le");
    if (le === undefined) continue;
    const series = [...labels].filter(([label]) => label !== "le").join(" ");
    bounds.set(series, [...bounds.get(series) ?? [], le]);
  }
  return [...bounds.values()];
}

const EXP = Array.from({ length: 15 }, (_, power) => 0.001 * Math.pow(2, power));
const NPL = [
  ...[0.25, 0.5],
  ...range(1, 59, 1),
  ...range(60, 115, 5),
  ...range(120, 300, 30),
];

function range(from: number, to: number, step: number): readonly number[] {
  return Array.from({ length: (to - from) / step + 1 }, (_, index) => from + index * step);
}

/** Name without `kubeproxy_`, type, labels, buckets, and modes: I iptables, V ipvs, N nftables. */
type Row = readonly [string, string, readonly string[], readonly number[] | undefined, string];

const FAMILY = ["ip_family"];
const UPSTREAM: readonly Row[] = [
  ["sync_proxy_rules_duration_seconds", "histogram", FAMILY, EXP, "IVN"],
  ["sync_full_proxy_rules_duration_seconds", "histogram", FAMILY, EXP, "IN"],
  ["sync_partial_proxy_rules_duration_seconds", "histogram", FAMILY, EXP, "IN"],
  ["sync_proxy_rules_last_timestamp_seconds", "gauge", FAMILY, undefined, "IVN"],
  ["sync_proxy_rules_last_queued_timestamp_seconds", "gauge", FAMILY, undefined, "IVN"],
  ["network_programming_duration_seconds", "histogram", FAMILY, NPL, "IVN"],
  ["sync_proxy_rules_endpoint_changes_pending", "gauge", [], undefined, "IVN"],
  ["sync_proxy_rules_endpoint_changes_total", "counter", [], undefined, "IVN"],
  ["sync_proxy_rules_service_changes_pending", "gauge", [], undefined, "IVN"],
  ["sync_proxy_rules_service_changes_total", "counter", [], undefined, "IVN"],
  [
    "sync_proxy_rules_no_local_endpoints_total",
    "gauge",
    ["ip_family", "traffic_policy"],
    undefined,
    "IVN",
  ],
  ["proxy_healthz_total", "counter", ["code"], undefined, "IVN"],
  ["proxy_livez_total", "counter", ["code"], undefined, "IVN"],
  ["sync_proxy_rules_iptables_total", "gauge", ["ip_family", "table"], undefined, "I"],
  ["sync_proxy_rules_iptables_last", "gauge", ["ip_family", "table"], undefined, "I"],
  ["sync_proxy_rules_iptables_restore_failures_total", "counter", FAMILY, undefined, "IV"],
  ["sync_proxy_rules_iptables_partial_restore_failures_total", "counter", FAMILY, undefined, "I"],
  ["sync_proxy_rules_nftables_sync_failures_total", "counter", FAMILY, undefined, "N"],
  ["sync_proxy_rules_nftables_cleanup_failures_total", "counter", FAMILY, undefined, "N"],
  ["conntrack_reconciler_sync_duration_seconds", "histogram", FAMILY, EXP, "IVN"],
  ["conntrack_reconciler_deleted_entries_total", "counter", FAMILY, undefined, "IVN"],
  ["iptables_ct_state_invalid_dropped_packets_total", "counter", [], undefined, "I"],
  ["iptables_localhost_nodeports_accepted_packets_total", "counter", [], undefined, "I"],
];

/** The letters of the modes that upstream has. */
const LETTERS: Readonly<Partial<Record<BackendMode, string>>> = {
  iptables: "I",
  ipvs: "V",
  nftables: "N",
};

/**
 * A mode that upstream does not have: the rows of all its modes. Those of connection tracking
 * appear only if the kernel forwards.
 */
function isInOwnMode([name, , , , modes]: Row, mode: BackendMode): boolean {
  return modes === "IVN" &&
    !(MODE_TRAITS[mode].forwardsItself && name.startsWith("conntrack"));
}

function rowsOf(mode: BackendMode): readonly Row[] {
  const letter = LETTERS[mode];
  if (letter === undefined) return UPSTREAM.filter((row) => isInOwnMode(row, mode));
  return UPSTREAM.filter(([, , , , modes]) => modes.includes(letter));
}

/** Every row of the table is in the text, and no other of kube-proxy's. */
function assertUpstreamMetrics(text: string, mode: BackendMode): void {
  const metrics = parsePrometheusText(text);
  const rows = rowsOf(mode);
  const expected = rows.map(([name]) => `kubeproxy_${name}`).sort();
  const served = [...metrics.keys()].filter((name) => name.startsWith("kubeproxy_"));
  assertEquals(served.sort(), expected, mode);
  for (const [name, type, labels, buckets] of rows) {
    const metric = metrics.get(`kubeproxy_${name}`)!;
    assertEquals(metric.type, type, name);
    assert(metric.samples.length > 0, `${mode} has no series of ${name}`);
    assertEquals(labelNames(metric), labels, name);
    if (!buckets) continue;
    for (const bounds of bucketBounds(metric)) {
      assertEquals(bounds, [...buckets.map(String), "+Inf"], name);
    }
  }
}

/** Reports every figure of both families, with unknown words. */
function tellEverything(metrics: ProxyMetrics): void {
  for (const family of ["IPv4", "IPv6"] as const) {
    metrics.syncQueued(family, 1000);
    metrics.syncFinished(family, { seconds: 1, full: true });
    metrics.syncFinished(family, { seconds: 1, full: false });
    metrics.syncFailed(family);
    metrics.syncSucceeded(family, {
      at: 2000,
      quarantined: 1,
      programmingSeconds: [1],
      noLocalEndpoints: { internal: 1, external: 2 },
      rules: { nat: { total: 20, last: 2 }, filter: { total: 10, last: 1 } },
    });
    metrics.conntrackReconciled(family, { seconds: 0.1, deleted: 3 });
    for (const kind of ["rule", "chain"] as const) {
      metrics.driftFound({ controller: "service", family }, { kind, found: 2, repaired: 1 });
    }
    metrics.setRuleCounters(family, {
      failedWrites: 4,
      failedPartialWrites: 3,
      failedCleanups: 2,
      invalidDroppedPackets: 5,
      localhostNodePortPackets: 6,
    });
  }
  for (const result of METRICS["kube_relay_config_reloads_total"].labels.result) {
    metrics.configReloaded(result);
  }
  for (const resource of ["services", "moon", "sun"]) {
    metrics.setSource(resource, 1, { watchFailures: 1, relists: 1 });
  }
  for (const status of [200, 404, 600, 1000, undefined]) {
    metrics.apiAnswered({ method: "GET", host: "api.example:6443", status, seconds: 1 });
  }
  metrics.setRefusals(1);
  metrics.its["kube_relay_routing_owner_changes_total"]
    .inc({ ip_family: "IPv4", change: "gained" });
  metrics.its["kube_relay_routing_status_writes_total"].inc({ outcome: "written" });
  metrics.setSessions([
    { peer: "tor", state: "Established", imported: 1, exported: 2, refusedUpdates: 3 },
  ]);
  metrics.its["kubeproxy_proxy_healthz_total"].inc({ code: "200" });
  metrics.healthBindFailed();
  metrics.its["kube_relay_host_settings_refused"].set(1);
}

for (const mode of BACKEND_MODES) {
  Deno.test(`ProxyMetrics has kube-proxy's table in mode ${mode}, row by row`, async () => {
    const metrics = new ProxyMetrics({ version: "1.2.3", mode });
    tellEverything(metrics);
    assertUpstreamMetrics((await metrics.render()).body, mode);
  });

  Deno.test(`ProxyMetrics keeps every label and series in its bound in mode ${mode}`, async () => {
    const traffic = new ServiceTrafficTable({ maxServices: 1 });
    const metrics = new ProxyMetrics({ version: "1.2.3", mode, traffic, hasRouting: true });
    tellEverything(metrics);
    const served = parsePrometheusText((await metrics.render()).body);
    const expected = METRIC_ROWS.filter((row) => hasMetric(mode, row)).map(({ name }) => name)
      .filter((name) => !name.startsWith("kube_relay_service_") || name.includes("_health_"));
    assertEquals([...served.keys()].sort(), expected.sort());
    for (const row of METRIC_ROWS.filter(({ name }) => served.has(name))) {
      const { samples } = served.get(row.name)!;
      const labels = row.labels ?? {};
      for (const sample of samples) {
        for (const [label, value] of sample.labels) {
          if (label === "le") continue;
          const allowed = labels[label] ?? [];
          const isFree = allowed.some((each) => each.startsWith("("));
          assert(isFree || allowed.includes(value), `${row.name} has ${label}="${value}"`);
        }
      }
      const isFixed = Object.values(labels).flat().every((value) => !value.startsWith("("));
      if (isFixed) assert(samples.length <= seriesBound(row), row.name);
    }
    const codes = served.get("rest_client_requests_total")!.samples
      .map(({ labels }) => labels.get("code")!);
    assertEquals(codes.sort(), ["200", "404", "<error>"]);
  });
}

Deno.test("ProxyMetrics has no nfacct counters if there is no nfacct", async () => {
  const metrics = new ProxyMetrics({ version: "1.2.3", mode: "iptables" });
  metrics.setRuleCounters("IPv4", { failedWrites: 0, failedPartialWrites: 0, failedCleanups: 0 });
  const served = parsePrometheusText((await metrics.render()).body);
  for (const name of ["ct_state_invalid_dropped", "localhost_nodeports_accepted"]) {
    assertEquals(served.get(`kubeproxy_iptables_${name}_packets_total`)?.samples, [], name);
  }
});

/** The value of a series of a text, by its name and labels as they are written. */
function valueOf(text: string, series: string): number | undefined {
  const line = text.split("\n").find((each) => each.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

/** Whether both families have had a sync that succeeded. */
function isSynced(text: string): boolean {
  const name = "kubeproxy_sync_proxy_rules_last_timestamp_seconds";
  return ["IPv4", "IPv6"].every((family) =>
    valueOf(text, `${name}{ip_family="${family}"}`) !== undefined
  );
}

const CHANGES = "kubeproxy_sync_proxy_rules";

/**
 * Whether the Service is served. The first sync may have been before the manifests were read, and
 * changes may wait for the next.
 */
function isServing(text: string): boolean {
  return isSynced(text) &&
    ["service", "endpoint"].every((name) =>
      valueOf(text, `${CHANGES}_${name}_changes_total`)! > 0 &&
      valueOf(text, `${CHANGES}_${name}_changes_pending`) === 0
    );
}

const CLUSTER_IP = "127.96.7.1";

/** A kube-relay with `--service-counters`, and its Service `default/web`. */
async function withRelay(test: (relay: LoopbackRelay) => Promise<void>): Promise<void> {
  await using endpoint = TcpServer.start(async (connection) => {
    const { text } = await readToEnd(connection);
    await writeFully(connection, new TextEncoder().encode(text));
    await connection.closeWrite();
  });
  const web = writeServiceManifest({
    ...{ name: "web", clusterIp: CLUSTER_IP, protocol: "TCP" },
    ...{ endpoints: ["127.0.0.1"], endpointPort: endpoint.port },
  });
  const options = { manifests: { "web.yaml": web }, args: ["--service-counters"] };
  await using relay = await LoopbackRelay.start(options);
  await test(relay);
}

function scrapeWhen(relay: LoopbackRelay, isSo: (text: string) => boolean): Promise<string> {
  return relay.until("metrics as wanted", async () => {
    const text = await relay.scrape().catch(() => undefined);
    return text !== undefined && isSo(text) && text;
  });
}

/** Sends a text through the Service, whose endpoint returns it. */
async function exchange(text: string): Promise<string> {
  using client = await Deno.connect({ hostname: CLUSTER_IP, port: servicePort("TCP") });
  await writeFully(client, new TextEncoder().encode(text));
  await client.closeWrite();
  return (await readToEnd(client)).text;
}

Deno.test("kube-relay serves kube-proxy's table in userspace mode, row by row", () =>
  withRelay(async (relay) => {
    const text = await scrapeWhen(relay, isServing);
    assertUpstreamMetrics(text, "userspace");
    const now = Date.now() / 1000;
    for (const name of ["last", "last_queued"]) {
      const series = `kubeproxy_sync_proxy_rules_${name}_timestamp_seconds{ip_family="IPv4"}`;
      assert(Math.abs(valueOf(text, series)! - now) < 60, name);
    }
    // One Service and one slice, counted for each family to which they may belong.
    assertEquals(valueOf(text, `${CHANGES}_service_changes_total`), 2);
    assertEquals(valueOf(text, `${CHANGES}_endpoint_changes_total`), 1);
    const gate = 'kubernetes_feature_enabled{name="AllowServiceExternalIPs",stage=""}';
    assertEquals(valueOf(text, gate), 1);
  }));

Deno.test("kube-relay serves the traffic of a Service with --service-counters, until it is deleted", () =>
  withRelay(async (relay) => {
    const labels =
      'namespace="default",service="web",port_name="main",protocol="TCP",ip_family="IPv4"';
    await scrapeWhen(relay, isServing);
    assertEquals(await exchange("four"), "four");
    const text = await scrapeWhen(
      relay,
      (text) => valueOf(text, `kube_relay_service_open_connections{${labels}}`) === 0,
    );
    assertEquals(valueOf(text, `kube_relay_service_received_bytes_total{${labels}}`), 4);
    assertEquals(valueOf(text, `kube_relay_service_sent_bytes_total{${labels}}`), 4);
    assertEquals(valueOf(text, `kube_relay_service_connections_total{${labels}}`), 1);
    parsePrometheusText(text);
    await Deno.remove(`${relay.folder}/manifests/web.yaml`);
    await scrapeWhen(relay, (text) => !text.includes('service="web"'));
  }));

Deno.test("kube-relay exports the number of problems that status lists, by kind", async () => {
  const manifest = (name: string, clusterIp: string) =>
    writeServiceManifest({
      ...{ name, clusterIp, protocol: "TCP", endpoints: ["127.0.0.1"], endpointPort: 9 },
    });
  await using relay = await LoopbackRelay.start({
    manifests: {
      "web.yaml": manifest("web", CLUSTER_IP),
      // Its address is that of the first Service.
      "other.yaml": manifest("web-other", CLUSTER_IP),
      "broken.yaml": "kind: [",
    },
  });
  await relay.settled();
  const text = await scrapeWhen(
    relay,
    (text) => valueOf(text, 'kube_relay_problems{kind="quarantine"}') === 1,
  );
  const status = await relay.status();
  const listed = statusProblems(status, { time: () => "" }).map(({ cells: [kind] }) => kind);
  for (const kind of PROBLEM_KINDS) {
    const count = listed.filter((each) => each === kind).length;
    assertEquals(valueOf(text, `kube_relay_problems{kind="${kind}"}`), count, kind);
  }
  assertEquals(listed.toSorted(), ["quarantine", "source"]);
  assertEquals(valueOf(text, 'kube_relay_planned_service_ports{ip_family="IPv4"}'), 2);
});

for (const families of [["IPv4"], ["IPv6"], ["IPv4", "IPv6"]] as const) {
  Deno.test(`the page has the series of the families that run: ${families.join(", ")}`, async () => {
    await using relay = await PolicyRelay.start({ manifests: {}, families });
    await relay.synced();
    const shown = (await relay.metrics()).flatMap((line) =>
      /ip_family="(\w+)"/.exec(line)?.[1] ?? []
    );
    assertEquals([...new Set(shown)].sort(), [...families]);
  });
}
