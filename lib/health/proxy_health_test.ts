import { assertEquals } from "@std/assert";
import { serviceLoop } from "../../tests/support/builders/builders.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { ProxyHealth } from "./proxy_health.ts";

const TIMEOUT_MS = 10_000;
const START = Date.UTC(2026, 0, 1);

function createHealth(): { readonly clock: FakeClock; readonly health: ProxyHealth } {
  const clock = new FakeClock(START);
  return { clock, health: new ProxyHealth({ clock }, { timeoutMs: TIMEOUT_MS }) };
}

Deno.test("ProxyHealth is healthy before anything was asked for, and through a quiet time", () => {
  const { clock, health } = createHealth();
  assertEquals(health.healthy(), true);
  health.on({ kind: "synced", loop: serviceLoop("IPv4") });
  health.on({ kind: "synced", loop: serviceLoop("IPv6") });
  clock.stall(25_000);
  assertEquals(health.healthy(), true);
});

Deno.test("ProxyHealth turns unhealthy when a sync is overdue in one family", () => {
  const { clock, health } = createHealth();
  health.on({ kind: "synced", loop: serviceLoop("IPv4") });
  health.on({ kind: "synced", loop: serviceLoop("IPv6") });
  clock.stall(1000);
  health.on({ kind: "queued", loop: serviceLoop("IPv4") });
  clock.stall(9999);
  assertEquals(health.healthy(), true);
  clock.stall(1);
  assertEquals(health.healthy(), false);
  assertEquals([...health.loops()], [
    ["IPv4", { lastUpdated: START, healthy: false }],
    ["IPv6", { lastUpdated: START, healthy: true }],
  ]);
  health.on({ kind: "synced", loop: serviceLoop("IPv4") });
  assertEquals(health.healthy(), true);
});

Deno.test("ProxyHealth needs the late family itself to catch up", () => {
  const { clock, health } = createHealth();
  health.on({ kind: "queued", loop: serviceLoop("IPv6") });
  clock.stall(25_000);
  health.on({ kind: "synced", loop: serviceLoop("IPv4") });
  assertEquals(health.healthy(), false);
  health.on({ kind: "synced", loop: serviceLoop("IPv6") });
  assertEquals(health.healthy(), true);
});

Deno.test("ProxyHealth counts from the oldest request that waits", () => {
  const { clock, health } = createHealth();
  health.on({ kind: "queued", loop: serviceLoop("IPv4") });
  clock.stall(9000);
  health.on({ kind: "queued", loop: serviceLoop("IPv4") });
  clock.stall(1000);
  assertEquals(health.healthy(), false);
});

Deno.test("ProxyHealth does not count a jump of the time of day as a delay, and reports the new time", () => {
  const { clock, health } = createHealth();
  health.on({ kind: "started", loop: serviceLoop("IPv4") });
  health.on({ kind: "queued", loop: serviceLoop("IPv4") });
  clock.jump(3_600_000);
  assertEquals([...health.loops()], [["IPv4", { lastUpdated: START, healthy: true }]]);
  clock.jump(-7_200_000);
  clock.stall(TIMEOUT_MS);
  assertEquals(health.healthy(), false);
  health.on({ kind: "synced", loop: serviceLoop("IPv4") });
  const lastUpdated = START - 3_600_000 + TIMEOUT_MS;
  assertEquals([...health.loops()], [["IPv4", { lastUpdated, healthy: true }]]);
});

Deno.test("ProxyHealth knows a node that may be a target of load balancers", () => {
  const { health } = createHealth();
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
