import { assertEquals } from "@std/assert";
import { ProxyHealth } from "./proxy_health.ts";

const TIMEOUT_MS = 10_000;

function createHealth(): ProxyHealth {
  return new ProxyHealth({ timeoutMs: TIMEOUT_MS });
}

Deno.test("ProxyHealth is healthy before anything was asked for, and through a quiet time", () => {
  const health = createHealth();
  assertEquals(health.healthy(0), true);
  health.synced("IPv4", 0);
  health.synced("IPv6", 0);
  assertEquals(health.healthy(25_000), true);
});

Deno.test("ProxyHealth turns unhealthy when a sync is overdue in one family", () => {
  const health = createHealth();
  health.synced("IPv4", 0);
  health.synced("IPv6", 0);
  health.syncQueued("IPv4", 1000);
  assertEquals(health.healthy(10_999), true);
  assertEquals(health.healthy(11_000), false);
  assertEquals([...health.families(26_000)], [
    ["IPv4", { lastUpdated: 0, healthy: false }],
    ["IPv6", { lastUpdated: 0, healthy: true }],
  ]);
  health.synced("IPv4", 26_000);
  assertEquals(health.healthy(26_000), true);
});

Deno.test("ProxyHealth needs the late family itself to catch up", () => {
  const health = createHealth();
  health.syncQueued("IPv6", 0);
  health.synced("IPv4", 25_000);
  assertEquals(health.healthy(25_000), false);
  health.synced("IPv6", 25_001);
  assertEquals(health.healthy(25_001), true);
});

Deno.test("ProxyHealth counts from the oldest request that waits", () => {
  const health = createHealth();
  health.syncQueued("IPv4", 0);
  health.syncQueued("IPv4", 9000);
  assertEquals(health.healthy(10_000), false);
});

Deno.test("ProxyHealth knows a node that may be a target of load balancers", () => {
  const health = createHealth();
  assertEquals(health.nodeEligible, false, "never seen");
  health.nodeSeen({});
  assertEquals(health.nodeEligible, true);
  health.nodeSeen({ taints: [{ key: "other" }] });
  assertEquals(health.nodeEligible, true);
  health.nodeSeen({ taints: [{ key: "ToBeDeletedByClusterAutoscaler" }] });
  assertEquals(health.nodeEligible, false);
  health.nodeSeen({ deletionTimestamp: "2026-01-01T00:00:00Z" });
  assertEquals(health.nodeEligible, false);
});
