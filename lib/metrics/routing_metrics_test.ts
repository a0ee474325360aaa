import { assertEquals } from "@std/assert";
import { pool } from "../../tests/support/builders/routed_objects.ts";
import { ProxyMetrics } from "./proxy_metrics.ts";

async function lines(metrics: ProxyMetrics): Promise<readonly string[]> {
  const { body } = await metrics.render();
  return body.split("\n").filter((line) => line.startsWith("kube_relay_routing_"));
}

Deno.test("ProxyMetrics has no series before the routing controller sets them", async () => {
  const metrics = new ProxyMetrics({ version: "1", mode: "nftables", hasRouting: true });
  assertEquals(await lines(metrics), []);
});

Deno.test("ProxyMetrics drops the series of sessions that are gone", async () => {
  const metrics = new ProxyMetrics({ version: "1", mode: "nftables", hasRouting: true });
  const session = { imported: 0, exported: 3, refusedUpdates: 1 };
  metrics.setSessions([
    { ...session, peer: "tor_1", state: "Established" },
    { ...session, peer: "tor_2", state: "Active" },
  ]);
  metrics.setSessions([{ ...session, peer: "tor_2", state: "Active" }]);
  assertEquals(await lines(metrics), [
    'kube_relay_routing_bgp_session_up{peer="tor_2"} 0',
    'kube_relay_routing_bgp_refused_updates{peer="tor_2"} 1',
    'kube_relay_routing_bgp_prefixes{peer="tor_2",direction="in"} 0',
    'kube_relay_routing_bgp_prefixes{peer="tor_2",direction="out"} 3',
  ]);
});

Deno.test("ProxyMetrics shows refusals only of the process that assigns", async () => {
  const metrics = new ProxyMetrics({ version: "1", mode: "nftables", hasRouting: true });
  metrics.setRefusals(2);
  assertEquals(await lines(metrics), [
    "kube_relay_routing_assigns 1",
    "kube_relay_routing_refused_services 2",
  ]);
  metrics.setRefusals(undefined);
  assertEquals(await lines(metrics), ["kube_relay_routing_assigns 0"]);
});

Deno.test("ProxyMetrics counts the addresses of pools and owners", async () => {
  const metrics = new ProxyMetrics({ version: "1", mode: "nftables", hasRouting: true });
  const office = pool("office", ["192.0.2.0/28"]);
  metrics.setPools([{ pool: office, family: "IPv4", size: 16n, used: 3 }]);
  metrics.its["kube_relay_routing_owned_addresses"].set({ ip_family: "IPv4" }, 2);
  metrics.its["kube_relay_routing_owner_changes_total"]
    .inc({ ip_family: "IPv4", change: "gained" });
  metrics.its["kube_relay_routing_status_writes_total"].inc({ outcome: "written" });
  assertEquals(await lines(metrics), [
    'kube_relay_routing_owned_addresses{ip_family="IPv4"} 2',
    'kube_relay_routing_owner_changes_total{ip_family="IPv4",change="gained"} 1',
    'kube_relay_routing_pool_addresses{pool="office",ip_family="IPv4"} 16',
    'kube_relay_routing_pool_used_addresses{pool="office",ip_family="IPv4"} 3',
    'kube_relay_routing_status_writes_total{outcome="written"} 1',
  ]);
});
