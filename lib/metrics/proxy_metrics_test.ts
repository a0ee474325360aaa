import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { pool } from "../../tests/support/builders/routed_objects.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { METRIC_ROWS, seriesBound } from "../../tests/support/metric_rows.ts";
import type { BackendMode } from "../proxy/backend.ts";
import type { ServicePortName } from "../proxy/service_port_name.ts";
import { ServiceTrafficTable } from "../proxy/service_traffic.ts";
import { ProxyMetrics, renderServiceSeries } from "./proxy_metrics.ts";

function create(): ProxyMetrics {
  return new ProxyMetrics({
    ...{ version: "0.1.0", mode: "userspace", clock: new FakeClock(), hasRouting: true },
  });
}

/** The value of one series, `undefined` where there is none. */
async function valueOf(metrics: ProxyMetrics, series: string): Promise<number | undefined> {
  const { body } = await metrics.render();
  const line = body.split("\n").find((each) => each.startsWith(`${series} `));
  return line === undefined ? undefined : Number(line.slice(series.length + 1));
}

/** The traffic of a family of which nothing was counted. */
const NO_TRAFFIC = {
  ...{ tcpAccepted: 0, tcpRefused: 0, tcpDenied: 0, tcpLimited: 0, tcpExpired: 0 },
  ...{
    proxyHeaderErrors: 0,
    serverNameErrors: 0,
    tcpSilentClosed: 0,
    dialFailures: 0,
    dialTimeouts: 0,
  },
  ...{ udpFlows: 0, udpMoved: 0, udpDropped: 0, udpDenied: 0, udpLimited: 0, udpExpired: 0 },
  udpForeignDropped: 0,
};

const DRIFT = { kind: "rule", found: 3, repaired: 2 } as const;
const HEALTH = {
  ...{ checksPassed: 5, checksFailed: 2, checksTimedOut: 1, ejections: 4 },
  ...{ healthy: 7, unhealthy: 3, ejected: 1 },
};
const CHANGES = { servicesPending: 1, servicesTotal: 7, endpointsPending: 2, endpointsTotal: 8 };
const OFFICE = pool("office", ["192.0.2.0/28"]);
const SESSION = { imported: 0, exported: 3, refusedUpdates: 1 };

/** What is reported, and the series that it sets; `undefined` = there is none. */
const REPORTED: readonly (readonly [
  what: string,
  report: (metrics: ProxyMetrics) => void,
  series: Readonly<Record<string, number | undefined>>,
])[] = [
  ["syncs under upstream's names", (metrics) => {
    metrics.syncQueued("IPv4", 5_000);
    metrics.syncFinished("IPv4", { seconds: 0.003 });
    metrics.syncSucceeded("IPv4", {
      ...{ at: 7_000, quarantined: 2, programmingSeconds: [0.3, 70] },
      noLocalEndpoints: { internal: 1, external: 3 },
    });
    metrics.syncFailed("IPv6");
  }, {
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
  }],
  ["changes of both families together", (metrics) => {
    metrics.setChanges("IPv4", CHANGES);
    metrics.setChanges("IPv6", CHANGES);
    metrics.setChanges("IPv4", { ...CHANGES, endpointsPending: 0, servicesTotal: 9 });
  }, {
    "kubeproxy_sync_proxy_rules_service_changes_total": 16,
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending": 2,
  }],
  ["the drift of each controller by itself", (metrics) => {
    metrics.driftFound({ controller: "network-policy", family: "IPv4" }, DRIFT);
    metrics.driftFound({ controller: "service", family: "IPv4" }, { ...DRIFT, found: 1 });
  }, {
    'kube_relay_drift_found_total{controller="network-policy",ip_family="IPv4",kind="rule"}': 3,
    'kube_relay_drift_repaired_total{controller="network-policy",ip_family="IPv4",kind="rule"}': 2,
    'kube_relay_drift_found_total{controller="service",ip_family="IPv4",kind="rule"}': 1,
  }],
  ["totals that were counted elsewhere", (metrics) => {
    metrics.setTraffic("IPv6", { ...NO_TRAFFIC, tcpAccepted: 10 });
    metrics.setTraffic("IPv6", { ...NO_TRAFFIC, tcpAccepted: 25, udpForeignDropped: 8 });
    metrics.setSource("services", undefined, { watchFailures: 3, relists: 1 });
  }, {
    'kube_relay_userspace_tcp_connections_total{ip_family="IPv6"}': 25,
    'kube_relay_userspace_udp_foreign_dropped_datagrams_total{ip_family="IPv6"}': 8,
    'kube_relay_relists_total{resource="services"}': 1,
  }],
  ["the health of endpoints", (metrics) => {
    metrics.setHealth("IPv4", HEALTH);
    metrics.setHealth("IPv4", { ...HEALTH, checksPassed: 6, unhealthy: 0 });
  }, {
    'kube_relay_userspace_health_checks_total{ip_family="IPv4",result="passed"}': 6,
    'kube_relay_userspace_health_checks_total{ip_family="IPv4",result="timeout"}': 1,
    'kube_relay_userspace_ejections_total{ip_family="IPv4"}': 4,
    'kube_relay_userspace_endpoints{ip_family="IPv4",state="healthy"}': 7,
    'kube_relay_userspace_endpoints{ip_family="IPv4",state="unhealthy"}': 0,
  }],
  ["the sessions of BGP that there are", (metrics) => {
    metrics.setSessions([
      { ...SESSION, peer: "tor_1", state: "Established" },
      { ...SESSION, peer: "tor_2", state: "Active" },
    ]);
    metrics.setSessions([{ ...SESSION, peer: "tor_2", state: "Active" }]);
  }, {
    'kube_relay_routing_bgp_session_up{peer="tor_1"}': undefined,
    'kube_relay_routing_bgp_session_up{peer="tor_2"}': 0,
    'kube_relay_routing_bgp_refused_updates{peer="tor_2"}': 1,
    'kube_relay_routing_bgp_prefixes{peer="tor_2",direction="in"}': 0,
    'kube_relay_routing_bgp_prefixes{peer="tor_2",direction="out"}': 3,
  }],
  ["the refusals of the process that assigns", (metrics) => metrics.setRefusals(2), {
    "kube_relay_routing_assigns": 1,
    "kube_relay_routing_refused_services": 2,
  }],
  ["no refusals of any other process", (metrics) => {
    metrics.setRefusals(2);
    metrics.setRefusals(undefined);
  }, { "kube_relay_routing_assigns": 0, "kube_relay_routing_refused_services": undefined }],
  ["the addresses of pools", (metrics) => {
    metrics.setPools([{ pool: OFFICE, family: "IPv4", size: 16n, used: 3 }]);
  }, {
    'kube_relay_routing_pool_addresses{pool="office",ip_family="IPv4"}': 16,
    'kube_relay_routing_pool_used_addresses{pool="office",ip_family="IPv4"}': 3,
  }],
];

for (const [what, report, expected] of REPORTED) {
  Deno.test(`ProxyMetrics shows ${what}`, async () => {
    const metrics = create();
    report(metrics);
    for (const [series, value] of Object.entries(expected)) {
      assertEquals(await valueOf(metrics, series), value, series);
    }
  });
}

Deno.test("ProxyMetrics has no metric of routing without it, and no series of it at first", async () => {
  const { body } = await create().render();
  assertEquals([...body.matchAll(/^kube_relay_routing_.*$/gm)], []);
  const without = await new ProxyMetrics({ version: "1", mode: "userspace" }).render();
  assertEquals(without.body.includes("kube_relay_routing_"), false);
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
  // Its version would differ from that of most clusters, for which mixins have an alert.
  assertEquals(body.includes("kubernetes_build_info"), false);
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
