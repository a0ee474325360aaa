import { assert, assertEquals } from "@std/assert";
import type { Lease } from "../api/kinds/lease.ts";
import {
  heartbeatLeaseName,
  memberLeaseName,
  NodeLiveness,
  nodeOfLease,
  watchedBy,
} from "./node_liveness.ts";

function lease(renewal: number, leaseDurationSeconds = 3): Lease {
  return {
    metadata: { name: heartbeatLeaseName("a"), namespace: "kube-system" },
    spec: {
      holderIdentity: "a",
      leaseDurationSeconds,
      renewTime: `2026-01-01T00:00:0${renewal}.000000Z`,
    },
  };
}

/** A node that owns addresses and was seen to renew at 1000. */
function ownerSeenAt1000(): NodeLiveness {
  const node = new NodeLiveness({ leaseDurationSeconds: 3, now: 0 });
  node.observe(lease(1), { now: 1000 });
  return node;
}

/** Asks whenever it is time to, up to a time, and the heartbeat is as it was. */
function askUntil(node: NodeLiveness, until: number): void {
  for (let at = node.askAt; at <= until; at = node.askAt) {
    node.answered(lease(1), { sentAt: at, now: at });
  }
}

Deno.test("NodeLiveness: an owner is gone when the API server shows no renewal for most of the Lease", () => {
  const node = ownerSeenAt1000();
  assertEquals(node.askAt, 2200);
  assertEquals(node.isGone(60_000), false, "the API server was not asked");
  askUntil(node, 3_549);
  assertEquals(node.isGone(3_549), false);
  assertEquals(node.isGone(3_550), true);
});

Deno.test("NodeLiveness: a renewal in a watch or in an answer counts from when it was seen", () => {
  const node = ownerSeenAt1000();
  assertEquals(node.observe(lease(1), { now: 2000 }), false, "an event without a renewal");
  askUntil(node, 3_000);
  node.answered(lease(2), { sentAt: 3_100, now: 3_110 });
  assertEquals(node.isGone(5_000), false);
  assertEquals(node.askAt, 3_110 + 1_200);
});

Deno.test("NodeLiveness: an outage of the API server is no death of a node", () => {
  const node = ownerSeenAt1000();
  for (let at = 2_200; at < 60_000; at = node.askAt) {
    node.notAnswered({ now: at });
    assertEquals(node.isGone(at), false);
  }
  const back = node.askAt;
  askUntil(node, back + 2_999);
  assertEquals(node.isGone(back + 2_999), false, "the node may reach the API server later");
  assertEquals(node.isGone(back + 3_000), true, "it does not");
});

Deno.test("NodeLiveness: the heartbeat itself says how often it is renewed", () => {
  const node = new NodeLiveness({ leaseDurationSeconds: 3, now: 0 });
  node.observe(lease(1, 30), { now: 1000 });
  assertEquals(node.askAt, 13_000);
  node.observe(lease(2, 3), { now: 2_000 });
  assertEquals(node.askAt, 3_200);
  node.observe(lease(3, 60), { now: 3_000 });
  assertEquals(node.askAt, 27_000, "of a node with another configuration");
  node.observe(lease(4, 2 ** 31 - 1), { now: 4_000 });
  assertEquals(node.askAt, 244_000, "edited by hand");
});

Deno.test("watchedBy(): each node is watched by two others, and watches two, in clusters of any size", () => {
  assertEquals(watchedBy("a", ["a"]), []);
  assertEquals(watchedBy("a", ["a", "b"]), ["b"]);
  assertEquals(watchedBy("c", ["a", "b"]), [], "it takes no part itself");
  for (const size of [3, 10, 100, 1000]) {
    const members = Array.from({ length: size }, (_, index) => `node-${index}`);
    const watchers = new Map<string, number>();
    for (const each of members.slice(0, 100)) {
      const watched = watchedBy(each, members);
      assertEquals([new Set(watched).size, watched.includes(each)], [2, false]);
    }
    if (size > 100) continue;
    for (const node of members.flatMap((each) => watchedBy(each, members))) {
      watchers.set(node, (watchers.get(node) ?? 0) + 1);
    }
    assert(members.every((each) => watchers.get(each) === 2), `${size} nodes`);
  }
});

Deno.test("nodeOfLease() is the inverse of memberLeaseName()", () => {
  const named = (name: string): Lease => ({ ...lease(1), metadata: { name } });
  assertEquals(nodeOfLease(named(memberLeaseName("a"))), "a");
  assertEquals(nodeOfLease(named("kube-relay-allocator")), undefined);
});
