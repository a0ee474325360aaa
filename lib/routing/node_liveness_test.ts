import { assertEquals } from "@std/assert";
import type { Lease } from "../api/kinds/lease.ts";
import { nodeLeaseName, NodeLiveness, nodeOfLease } from "./node_liveness.ts";

function lease(renewal: number, { holder = "a", seconds = 3 } = {}): Lease {
  return {
    metadata: { name: nodeLeaseName("a"), namespace: "kube-system" },
    spec: {
      holderIdentity: holder,
      leaseDurationSeconds: seconds,
      renewTime: `2026-01-01T00:00:0${renewal}.000000Z`,
    },
  };
}

Deno.test("NodeLiveness counts from the renewal that it saw, not by the clock of the other node", () => {
  const nodes = new NodeLiveness();
  nodes.observe("a", lease(1), { now: 1000 });
  nodes.observe("a", lease(1), { now: 3500 });
  assertEquals([...nodes.live(3699)], ["a"]);
  assertEquals(nodes.nextExpiry(3699), 3700);
  assertEquals([...nodes.live(3700)], []);
  assertEquals(nodes.nextExpiry(3700), undefined);
  nodes.observe("a", lease(2), { now: 5000 });
  assertEquals([...nodes.live(7699)], ["a"]);
});

Deno.test("NodeLiveness notices a release at once", () => {
  const nodes = new NodeLiveness();
  nodes.observe("a", lease(1), { now: 0 });
  nodes.observe("a", lease(2, { holder: "" }), { now: 1 });
  assertEquals([...nodes.live(2)], []);
  nodes.observe("a", lease(3), { now: 3 });
  assertEquals([...nodes.live(4)], ["a"]);
  nodes.observe("a", undefined, { now: 5 });
  assertEquals([...nodes.live(6)], []);
});

Deno.test("NodeLiveness bounds the duration that a Lease claims", () => {
  const nodes = new NodeLiveness();
  nodes.observe("a", lease(1, { seconds: 86_400 }), { now: 0 });
  assertEquals(nodes.nextExpiry(0), 54_000);
});

Deno.test("NodeLiveness lets no Lease expire for the time without an API server", () => {
  const nodes = new NodeLiveness();
  nodes.observe("a", lease(1), { now: 0 });
  nodes.restart(60_000);
  assertEquals([...nodes.live(62_699)], ["a"]);
  assertEquals([...nodes.live(62_700)], []);
});

Deno.test("nodeOfLease() is the inverse of nodeLeaseName()", () => {
  assertEquals(nodeOfLease(lease(1)), "a");
  const other = { ...lease(1), metadata: { name: "kube-controller-manager" } };
  assertEquals(nodeOfLease(other), undefined);
});
