import { assert, assertEquals } from "@std/assert";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeKubeClient } from "../../../tests/support/fakes/fake_kube_client.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import type { Lease } from "../../api/kinds/lease.ts";
import { LeaseHolder } from "./lease_holder.ts";
import {
  HEARTBEAT_PREFIX,
  heartbeatSeconds,
  type LeaseFollower,
  NodeMonitor,
} from "./routing_leases.ts";

const PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/";
const MEMBER_PREFIX = "kube-relay-member-";
const LEASE_SECONDS = 3;
const READY = Promise.resolve();

/** Members of a cluster with one API server; `owners` have addresses. */
class Cluster implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly client = new FakeKubeClient();
  readonly nodes: readonly string[];
  readonly monitors = new Map<string, NodeMonitor>();
  /** Events of heartbeats that were sent to watchers. */
  events = 0;
  readonly #owners: ReadonlySet<string>;
  readonly #members = new Map<string, Lease>();
  readonly #followers = new Map<string, Set<(lease: Lease) => void>>();
  readonly #ends = new Map<string, AbortController>();
  readonly #running: Promise<void>[] = [];

  constructor({ nodes, owners = nodes }: { readonly nodes: number; readonly owners?: number }) {
    this.nodes = Array.from({ length: nodes }, (_, index) => `node-${index}`);
    this.#owners = new Set(this.nodes.slice(0, owners));
    this.client.onChange = (path, object) => {
      const name = path.slice(PATH.length);
      const lease = object as unknown as Lease;
      for (const take of this.#followers.get(name) ?? []) {
        this.events++;
        take(lease);
      }
      if (name.startsWith(MEMBER_PREFIX)) this.#onMember(name.slice(MEMBER_PREFIX.length), lease);
    };
    for (const node of this.nodes) {
      const metadata = { name: MEMBER_PREFIX + node, namespace: "kube-system" };
      this.client.put(PATH + metadata.name, { metadata, spec: { holderIdentity: node } });
    }
    for (const node of this.nodes) this.#start(node);
    this.#update();
  }

  get members(): readonly string[] {
    return [...this.#members.keys()];
  }

  /** Ends a node as `kill -9` does. */
  kill(node: string): void {
    this.#ends.get(node)!.abort();
    this.monitors.delete(node);
  }

  /** Requests and events of heartbeats in a time. */
  async count(ms: number): Promise<{ readonly requests: number; readonly events: number }> {
    const [requests, events] = [this.client.requests.length, this.events];
    await this.clock.advance(ms);
    return { requests: this.client.requests.length - requests, events: this.events - events };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const end of this.#ends.values()) end.abort();
    await Promise.all(this.#running);
    for (const monitor of this.monitors.values()) await monitor.stop();
  }

  #start(node: string): void {
    const { clock, client } = this;
    const logger = new MemoryLogger();
    const end = new AbortController();
    this.#ends.set(node, end);
    const isOwner = this.#owners.has(node);
    const heartbeat = new LeaseHolder({ clock, logger }, {
      ...{ namespace: "kube-system", name: HEARTBEAT_PREFIX + node, holder: node },
      durationSeconds: heartbeatSeconds(LEASE_SECONDS, isOwner),
    });
    this.#running.push(heartbeat.run(client, end.signal));
    const options = { leaseNamespace: "kube-system", leaseDurationSeconds: LEASE_SECONDS };
    const edges = { clock, logger, nodeName: node, client, follow: this.#follow };
    this.monitors.set(node, new NodeMonitor(edges, options, end.signal));
  }

  readonly #follow: LeaseFollower = (name, take, signal) => {
    const followers = this.#followers.getOrInsertComputed(name, () => new Set());
    followers.add(take);
    const ended = Promise.withResolvers<void>();
    signal.addEventListener("abort", () => {
      followers.delete(take);
      ended.resolve();
    });
    return ended.promise;
  };

  #onMember(node: string, lease: Lease): void {
    if (lease.spec.holderIdentity) this.#members.set(node, lease);
    else this.#members.delete(node);
    this.#update();
  }

  #update(): void {
    for (const monitor of this.monitors.values()) {
      for (const node of this.nodes) monitor.setMember(node, this.#members.get(node));
      monitor.update();
    }
  }
}

Deno.test("NodeMonitor: the cost of a node is the same in clusters of 10 and of 100 nodes", async () => {
  const perNode: number[] = [];
  for (const nodes of [10, 100]) {
    await using cluster = new Cluster({ nodes });
    await cluster.count(3_000);
    const { requests, events } = await cluster.count(10_000);
    perNode.push(events / nodes);
    assert(requests <= 11 * nodes, `${nodes} nodes: ${requests} requests in 10 s`);
    assert(events <= 22 * nodes, `${nodes} nodes: ${events} events in 10 s`);
    assertEquals(cluster.members.length, nodes);
  }
  assertEquals(perNode[0], perNode[1]);
});

Deno.test("NodeMonitor: nodes without addresses cost a tenth, and nothing to most other nodes", async () => {
  await using few = new Cluster({ nodes: 10, owners: 10 });
  await using many = new Cluster({ nodes: 200, owners: 10 });
  for (const each of [few, many]) await each.count(30_000);
  const [small, large] = [await few.count(30_000), await many.count(30_000)];
  const idle = 190;
  const more = { requests: idle * 3, events: idle * 2 * 3 };
  assert(large.requests <= small.requests + more.requests + idle, `${large.requests} requests`);
  assert(large.events <= small.events + more.events + 2 * idle, `${large.events} events`);
  const watched = Map.groupBy(
    [...many.monitors.values()].flatMap((monitor) => monitor.watched),
    (node) => node,
  );
  assertEquals(many.nodes.filter((node) => watched.get(node)?.length !== 2), [], "two watch each");
});

Deno.test("NodeMonitor: a dead node whose heartbeat was edited by hand is gone after ten minutes", async () => {
  await using cluster = new Cluster({ nodes: 3 });
  await cluster.count(5_000);
  cluster.kill("node-1");
  const path = `${PATH}${HEARTBEAT_PREFIX}node-1`;
  const heartbeat = cluster.client.objects.get(path)!;
  const spec = { ...heartbeat.spec as Lease["spec"], leaseDurationSeconds: 2 ** 31 - 1 };
  cluster.client.put(path, { ...heartbeat, spec });
  await cluster.count(500_000);
  assert(cluster.members.includes("node-1"), "it says that it renews less often");
  await cluster.count(100_000);
  assertEquals(cluster.members, ["node-0", "node-2"]);
});

Deno.test("NodeMonitor: after a power cut, the last node alone finds the others gone in a few steps", async () => {
  await using cluster = new Cluster({ nodes: 60 });
  await cluster.count(5_000);
  for (const node of cluster.nodes.slice(1)) cluster.kill(node);
  await cluster.count(20_000);
  assertEquals(cluster.members, ["node-0"]);
});

Deno.test("NodeMonitor: no node is gone while the API server is away, nor because of it", async () => {
  for (const ms of [1_000, 2_500, 4_000, 60_000]) {
    await using cluster = new Cluster({ nodes: 10, owners: 5 });
    await cluster.count(12_345);
    cluster.client.isAway = true;
    await cluster.count(ms);
    cluster.client.isAway = false;
    // One node reaches the API server later than the others.
    cluster.client.before = (verb, path) =>
      verb === "patch" && path.endsWith("heartbeat-node-0")
        ? Promise.reject(new Error("no route"))
        : READY;
    await cluster.count(2_500);
    cluster.client.before = () => READY;
    await cluster.count(60_000);
    assertEquals(cluster.members.length, 10, `after ${ms} ms`);
  }
});

Deno.test("NodeMonitor: a watch that brings nothing is no death", async () => {
  await using cluster = new Cluster({ nodes: 3 });
  await cluster.count(5_000);
  cluster.client.onChange = () => {};
  await cluster.count(30_000);
  const holders = [...cluster.client.objects.values()].map(({ spec }) =>
    (spec as Lease["spec"]).holderIdentity
  );
  assertEquals(holders.filter((each) => each === ""), []);
});
