import { assert, assertEquals } from "@std/assert";
import type { BackendMode } from "../proxy/backend.ts";
import type { ServicePortName } from "../proxy/service_port_name.ts";
import { ServiceTrafficTable } from "../proxy/service_traffic.ts";
import { renderServiceSeries } from "./service_series.ts";

async function textOf(
  table: ServiceTrafficTable,
  { pause = () => Promise.resolve(), mode = "userspace" }: {
    readonly pause?: () => Promise<void>;
    readonly mode?: BackendMode;
  } = {},
): Promise<string> {
  return (await Array.fromAsync(renderServiceSeries(table, { mode, pause }))).join("");
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
    ],
  );
});

Deno.test("renderServiceSeries() writes what the mode counts, and nothing that it does not see", async () => {
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
