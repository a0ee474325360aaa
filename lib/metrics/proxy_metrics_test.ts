import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { METRIC_ROWS, seriesBound } from "../../tests/support/metric_rows.ts";
import type { BackendMode } from "../proxy/backend.ts";
import type { ServicePortName } from "../proxy/service_port_name.ts";
import { ServiceTrafficTable } from "../proxy/service_traffic.ts";
import { ProxyMetrics, renderServiceSeries } from "./proxy_metrics.ts";

function create(): ProxyMetrics {
  return new ProxyMetrics({ version: "0.1.0", mode: "userspace", clock: new FakeClock() });
}

/** The value of one series, `undefined` where there is none. */
async function valueOf(metrics: ProxyMetrics, series: string): Promise<number | undefined> {
  const { body } = await metrics.render();
  const line = body.split("\n").find((each) => each.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

Deno.test("ProxyMetrics counts syncs under upstream's names", async () => {
  const metrics = create();
  metrics.syncQueued("IPv4", 5_000);
  metrics.syncFinished("IPv4", { seconds: 0.003 });
  metrics.syncSucceeded("IPv4", {
    at: 7_000,
    quarantined: 2,
    programmingSeconds: [0.3, 70],
    noLocalEndpoints: { internal: 1, external: 3 },
  });
  metrics.syncFailed("IPv6");
  const expected: Readonly<Record<string, number>> = {
    'kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv4"}': 5,
    'kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"}': 7,
    'kubeproxy_sync_proxy_rules_duration_seconds_bucket{le="0.002",ip_family="IPv4"}': 0,
    'kubeproxy_sync_proxy_rules_duration_seconds_bucket{le="0.004",ip_family="IPv4"}': 1,
    'kubeproxy_network_programming_duration_seconds_bucket{le="0.5",ip_family="IPv4"}': 1,
    'kubeproxy_network_programming_duration_seconds_bucket{le="65",ip_family="IPv4"}': 1,
    'kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"}': 2,
    'kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="internal"}':
      1,
    'kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="external"}':
      3,
    'kube_relay_quarantined_service_ports{ip_family="IPv4"}': 2,
    'kube_relay_sync_failures_total{ip_family="IPv6"}': 1,
    'kube_relay_sync_failures_total{ip_family="IPv4"}': 0,
  };
  for (const [series, value] of Object.entries(expected)) {
    assertEquals(await valueOf(metrics, series), value, series);
  }
});

Deno.test("ProxyMetrics counts answers and changes", async () => {
  const metrics = create();
  metrics.its["kubeproxy_proxy_healthz_total"].inc({ code: "503" });
  const family = { servicesPending: 1, servicesTotal: 7, endpointsPending: 2, endpointsTotal: 8 };
  metrics.setChanges("IPv4", family);
  metrics.setChanges("IPv6", family);
  metrics.setChanges("IPv4", { ...family, endpointsPending: 0, servicesTotal: 9 });
  assertEquals(await valueOf(metrics, 'kubeproxy_proxy_healthz_total{code="503"}'), 1);
  assertEquals(await valueOf(metrics, 'kubeproxy_proxy_livez_total{code="200"}'), 0);
  assertEquals(await valueOf(metrics, "kubeproxy_sync_proxy_rules_service_changes_total"), 16);
  assertEquals(await valueOf(metrics, "kubeproxy_sync_proxy_rules_endpoint_changes_pending"), 2);
});

Deno.test("ProxyMetrics counts the drift of each controller by itself", async () => {
  const metrics = create();
  const found = { kind: "rule", found: 3, repaired: 2 } as const;
  metrics.driftFound({ controller: "network-policy", family: "IPv4" }, found);
  metrics.driftFound({ controller: "service", family: "IPv4" }, { ...found, found: 1 });
  const labels = (controller: string) =>
    `{controller="${controller}",ip_family="IPv4",kind="rule"}`;
  for (
    const [series, value] of [
      [`kube_relay_drift_found_total${labels("network-policy")}`, 3],
      [`kube_relay_drift_repaired_total${labels("network-policy")}`, 2],
      [`kube_relay_drift_found_total${labels("service")}`, 1],
    ] as const
  ) assertEquals(await valueOf(metrics, series), value, series);
});

Deno.test("ProxyMetrics uses totals that were counted elsewhere", async () => {
  const metrics = create();
  const totals = {
    tcpAccepted: 10,
    tcpRefused: 1,
    tcpDenied: 1,
    tcpLimited: 11,
    tcpExpired: 12,
    proxyHeaderErrors: 13,
    tcpSilentClosed: 2,
    dialFailures: 3,
    dialTimeouts: 4,
    udpFlows: 5,
    udpMoved: 6,
    udpDropped: 7,
    udpDenied: 7,
    udpLimited: 14,
    udpExpired: 15,
    udpForeignDropped: 8,
  };
  metrics.setTraffic("IPv6", totals);
  const accepted = 'kube_relay_userspace_tcp_connections_total{ip_family="IPv6"}';
  assertEquals(await valueOf(metrics, accepted), 10);
  metrics.setTraffic("IPv6", { ...totals, tcpAccepted: 25 });
  assertEquals(await valueOf(metrics, accepted), 25);
  const foreign = 'kube_relay_userspace_udp_foreign_dropped_datagrams_total{ip_family="IPv6"}';
  assertEquals(await valueOf(metrics, foreign), 8);
  metrics.setSource("services", undefined, { watchFailures: 3, relists: 1 });
  assertEquals(await valueOf(metrics, 'kube_relay_relists_total{resource="services"}'), 1);
});

Deno.test("ProxyMetrics shows the health of endpoints", async () => {
  const metrics = create();
  const figures = {
    ...{ checksPassed: 5, checksFailed: 2, checksTimedOut: 1, ejections: 4 },
    ...{ healthy: 7, unhealthy: 3, ejected: 1 },
  };
  metrics.setHealth("IPv4", figures);
  metrics.setHealth("IPv4", { ...figures, checksPassed: 6, unhealthy: 0 });
  for (
    const [series, value] of [
      ['health_checks_total{ip_family="IPv4",result="passed"}', 6],
      ['health_checks_total{ip_family="IPv4",result="timeout"}', 1],
      ['ejections_total{ip_family="IPv4"}', 4],
      ['endpoints{ip_family="IPv4",state="healthy"}', 7],
      ['endpoints{ip_family="IPv4",state="unhealthy"}', 0],
    ] as const
  ) assertEquals(await valueOf(metrics, `kube_relay_userspace_${series}`), value, series);
});

Deno.test("ProxyMetrics reports CPU, memory and start of the process without /proc", async () => {
  const metrics = create();
  const cpu = await valueOf(metrics, "process_cpu_seconds_total");
  const memory = await valueOf(metrics, "process_resident_memory_bytes");
  assert(cpu !== undefined && cpu > 0 && cpu < 1000, String(cpu));
  assert(memory !== undefined && memory > 1e7, String(memory));
  assert(await valueOf(metrics, "process_start_time_seconds"));
});

Deno.test("ProxyMetrics describes the build", async () => {
  const { body, contentType } = await create().render();
  assertStringIncludes(body, 'kube_relay_build_info{version="0.1.0",mode="userspace",deno="');
  assertMatch(body, /kubernetes_build_info\{major="1",minor="36",git_version="v1\.36\.0\+kube-re/);
  assertStringIncludes(contentType, "text/plain");
});

Deno.test("METRICS has names as Prometheus wants them, and few series", () => {
  for (const { name, type } of METRIC_ROWS) {
    assertMatch(name, /^(kubeproxy|kubernetes|kube_relay|process|rest_client)_[a-z_]+$/);
    // Upstream has a gauge that ends in _total; kube-relay's own metrics follow the convention.
    if (name.startsWith("kube_relay")) {
      assertEquals(name.endsWith("_total"), type === "counter", name);
    }
  }
  assertEquals(new Set(METRIC_ROWS.map(({ name }) => name)).size, METRIC_ROWS.length);
  for (const row of METRIC_ROWS) assert(seriesBound(row) <= 2 * (80 + 3), row.name);
});

async function textOf(
  table: ServiceTrafficTable,
  { pause = () => Promise.resolve(), mode = "userspace" }: {
    readonly pause?: () => Promise<void>;
    readonly mode?: BackendMode;
  } = {},
): Promise<string> {
  return (await Array.fromAsync(renderServiceSeries(table, mode, pause))).join("");
}

function named(name: string, rest: Partial<ServicePortName> = {}): ServicePortName {
  return { namespace: "demo", name, port: "http", protocol: "TCP", ...rest };
}

Deno.test("renderServiceSeries() writes each counter with its labels, and other for the rest", async () => {
  const table = new ServiceTrafficTable({ maxServices: 1 });
  Object.assign(table.of("IPv4").enter(named("web")), {
    bytesFromClients: 1e15 + 1,
    bytesToClients: 2,
    opened: 3,
    open: 1,
    unhealthyEndpoints: 2,
  });
  table.of("IPv6").enter(named("dns", { protocol: "UDP" })).opened = 7;
  assertEquals(
    (await textOf(table)).split("\n").filter((line) => line !== "" && !line.startsWith("# HELP")),
    [
      "# TYPE kube_relay_service_received_bytes_total counter",
      'kube_relay_service_received_bytes_total{namespace="demo",service="web",port_name="http",protocol="TCP",ip_family="IPv4"} 1000000000000001',
      'kube_relay_service_received_bytes_total{namespace="",service="other",port_name="",protocol="UDP",ip_family="IPv6"} 0',
      "# TYPE kube_relay_service_sent_bytes_total counter",
      'kube_relay_service_sent_bytes_total{namespace="demo",service="web",port_name="http",protocol="TCP",ip_family="IPv4"} 2',
      'kube_relay_service_sent_bytes_total{namespace="",service="other",port_name="",protocol="UDP",ip_family="IPv6"} 0',
      "# TYPE kube_relay_service_connections_total counter",
      'kube_relay_service_connections_total{namespace="demo",service="web",port_name="http",protocol="TCP",ip_family="IPv4"} 3',
      'kube_relay_service_connections_total{namespace="",service="other",port_name="",protocol="UDP",ip_family="IPv6"} 7',
      "# TYPE kube_relay_service_open_connections gauge",
      'kube_relay_service_open_connections{namespace="demo",service="web",port_name="http",protocol="TCP",ip_family="IPv4"} 1',
      'kube_relay_service_open_connections{namespace="",service="other",port_name="",protocol="UDP",ip_family="IPv6"} 0',
      "# TYPE kube_relay_service_unhealthy_endpoints gauge",
      'kube_relay_service_unhealthy_endpoints{namespace="demo",service="web",port_name="http",protocol="TCP",ip_family="IPv4"} 2',
    ],
  );
});

Deno.test("renderServiceSeries() writes the figures that the mode counts, and no others", async () => {
  const table = new ServiceTrafficTable();
  table.of("IPv4").enter(named("web")).packetsToClients = 5;
  const names = (text: string) => [...text.matchAll(/^# TYPE (\S+)/gm)].map(([, name]) => name);
  const nftables = await textOf(table, { mode: "nftables" });
  assertEquals(names(nftables), [
    "kube_relay_service_received_bytes_total",
    "kube_relay_service_sent_bytes_total",
    "kube_relay_service_received_packets_total",
    "kube_relay_service_sent_packets_total",
  ]);
  assert(/sent_packets_total\{.*service="web".*\} 5\n/.test(nftables));
  assert(!names(await textOf(table)).some((name) => name?.includes("packets")));
});

Deno.test("renderServiceSeries() writes nothing while nothing was counted", async () => {
  assertEquals(await textOf(new ServiceTrafficTable()), "");
});

Deno.test("renderServiceSeries() lets no name end its label or its line", async () => {
  const table = new ServiceTrafficTable();
  table.of("IPv4").enter(named('a"} 1\nfake_metric{x="\\'));
  const text = await textOf(table);
  assertEquals(text.match(/service="a\\"} 1\\nfake_metric\{x=\\"\\\\",port_name/g)?.length, 4);
  assert(!/^fake_metric/m.test(text));
});

Deno.test("renderServiceSeries() pauses, and has no more than 8,000 ServicePorts for 10,000 Services", async () => {
  const table = new ServiceTrafficTable();
  for (let service = 0; service < 10_000; service++) {
    for (const family of ["IPv4", "IPv6"] as const) {
      for (const port of ["a", "b", "c"]) table.of(family).enter(named(`s${service}`, { port }));
    }
  }
  let pauses = 0;
  const text = await textOf(table, { pause: () => Promise.resolve(void pauses++) });
  const series = text.split("\n").filter((line) => line.startsWith("kube_relay"));
  assertEquals(series.length, 4 * (8000 + 2));
  assertEquals(
    new Set(series.map((line) => /service="([^"]*)"/.exec(line)![1])).size <= 2001,
    true,
  );
  assertEquals(pauses, 4 * Math.floor(8002 / 512));
});
