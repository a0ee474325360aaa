/**
 * Tests addresses and routes in a whole run, with fake data planes and an API server: assignment,
 * announcements, failover, and reports.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { askControlText } from "../lib/tools/control/control_client.ts";
import { paintText } from "../lib/tools/report.ts";
import { agesAt, statusAnswer } from "../lib/tools/status/status_answer.ts";
import { ROUTING_CONTROLLER } from "../lib/app/routing/routing_controller.ts";
import { manifestText } from "./support/builders/raw_objects.ts";
import { FakeRoutingBackends } from "./support/fakes/fake_routing_backends.ts";
import { MemoryLogger } from "./support/fakes/memory_logger.ts";
import { withFolder } from "./support/with_folder.ts";
import type { Cidr } from "../lib/net/cidr.ts";
import type { RawObject } from "./conformance/server.ts";
import { FakeApiServer } from "./support/fakes/fake_api_server.ts";
import { collectionOf } from "./support/fakes/fake_api_store.ts";
import { FakeClock } from "./support/fakes/fake_clock.ts";
import {
  assigned,
  rawLoadBalancer,
  rawNode,
  rawSlice,
  RoutingRelay,
} from "./support/stages/routing_relay.ts";
import { configurationOf } from "./support/drivers/own_flags.ts";
import { removePodNetwork } from "../lib/app/routing/routing_parts.ts";

const POOL = "192.0.2.0/30";
const [A, B] = ["node-a", "node-b"] as const;
const SERVICES = collectionOf({ kind: "Service", apiVersion: "v1" });
const WEB = rawLoadBalancer("web", { clusterIP: "172.30.0.41", nodes: [A, B] });

/** A Lease of a node as that node wrote it. */
function rawLease(kind: "member" | "heartbeat", node: string, renewTime: string): RawObject {
  const labels = { [`kube-relay.io/${kind === "member" ? "lease" : kind}`]: "true" };
  return {
    apiVersion: "coordination.k8s.io/v1",
    kind: "Lease",
    metadata: { namespace: "kube-system", name: `kube-relay-${kind}-${node}`, labels },
    spec: { holderIdentity: node, leaseDurationSeconds: 3, renewTime },
  };
}

/** An API server with two Nodes, and a clock. */
async function startCluster(...objects: readonly RawObject[]) {
  const [api, clock] = [await FakeApiServer.start(), new FakeClock()];
  for (const object of [rawNode(A, "192.168.0.2"), rawNode(B, "192.168.0.3"), ...objects]) {
    api.store.create(object);
  }
  const start = (node: string, ...args: string[]) =>
    RoutingRelay.start({
      ...{ node, api, clock },
      args: args.some((arg) => arg.includes("-pools="))
        ? args
        : [`--load-balancer-pools=${POOL}`, ...args],
    });
  return { api, clock, start, [Symbol.asyncDispose]: () => api[Symbol.asyncDispose]() };
}

Deno.test("a Service gets an address, which one node answers for", async (t) => {
  await using cluster = await startCluster(...WEB);
  const { api, start } = cluster;
  await using relay = await start(A);
  await relay.until("it is assigned", () => assigned(api, "web").length > 0);
  assertEquals(assigned(api, "web"), ["192.0.2.0"]);
  await relay.until("it is answered for", () => relay.held.length > 0);
  assertEquals(relay.held, ["192.0.2.0"]);

  await t.step("the status", async () => {
    const status = await relay.status();
    const [controller] = status.controllers!;
    assertEquals(controller!.facts, [
      { name: "Pool", text: "default: 1 of 4 IPv4 in use, announced by layer2" },
      { name: "Allocator", text: "this node" },
      { name: "Layer 2", text: "192.0.2.0 of default/web: node-a" },
    ]);
    assertStringIncludes(controller!.families[0]!.summary, "layer 2, answers for 1");
    const text = paintText(
      statusAnswer(status, { time: agesAt(cluster.clock.wallNow()) }),
      { columns: 100 },
    );
    assertStringIncludes(text, "\nrouting\n");
  });
  await t.step("the dump", async () => {
    const dump = JSON.parse(await askControlText(relay.socket, "/dump"));
    const { objects, live } = dump.controllers.routing;
    const [{ addresses }] = dump.configuration.proxy.routing.pools;
    assertEquals(addresses, ["192.0.2.0-192.0.2.3"]);
    assertEquals([objects.services.length, objects.nodes.length, live], [1, 2, [A]]);
    assertEquals([dump.objects.nodes.length, dump.objects.leases], [1, undefined]);
  });
  await t.step("the metrics", async () => {
    const lines = await relay.metrics();
    assert(lines.includes('kube_relay_routing_owned_addresses{ip_family="IPv4"} 1'));
    assert(lines.includes('kube_relay_routing_status_writes_total{outcome="written"} 1'));
  });
  await t.step("a Service that is no load balancer any more", async () => {
    const [service] = WEB;
    const stored = api.store.list(SERVICES).find(({ metadata: { name } }) => name === "web")!;
    api.store.update({ ...stored, spec: { ...service!.spec as object, type: "ClusterIP" } });
    await relay.until("its status is cleared", () => assigned(api, "web").length === 0);
    await relay.until("nobody answers", () => relay.held.length === 0);
  });
});

Deno.test("another node takes an address over within a second of SIGTERM", async () => {
  await using cluster = await startCluster(...WEB);
  const { api, clock, start } = cluster;
  const relays = [await start(A), await start(B)];
  const [first] = relays;
  const owners = () => relays.filter(({ held }) => held.length > 0);
  await first!.until("one answers", () => owners().length === 1);
  const owner = owners()[0]!;
  const other = relays.find((each) => each !== owner)!;
  const at = clock.now();
  const stopping = owner[Symbol.asyncDispose]();
  await other.until("the other answers", () => other.held.length === 1, { stepMs: 10 });
  assert(clock.now() - at < 1_000, `after ${clock.now() - at} ms`);
  await stopping;
  assertEquals(owner.held, []);
  assertEquals(assigned(api, "web"), ["192.0.2.0"]);
  await other[Symbol.asyncDispose]();
});

Deno.test("with policy Local, the node with the last ready endpoint answers", async () => {
  const local = rawLoadBalancer("web", {
    ...{ clusterIP: "172.30.0.41", nodes: [A], externalTrafficPolicy: "Local" },
  });
  await using cluster = await startCluster(...local);
  const { api, clock, start } = cluster;
  await using first = await start(A);
  await using second = await start(B);
  await first.until("its node answers", () => first.held.length === 1);
  const at = clock.now();
  api.store.update(rawSlice("web", [B]));
  await first.until("it moves", () => first.held.length === 0 && second.held.length === 1, {
    stepMs: 10,
  });
  assert(clock.now() - at < 1_000, `after ${clock.now() - at} ms`);
});

/** Changes the external traffic policy of Service `web`, which keeps its status. */
function setPolicy(api: FakeApiServer, externalTrafficPolicy: "Cluster" | "Local"): void {
  const stored = api.store.list(SERVICES).find(({ metadata: { name } }) => name === "web")!;
  api.store.update({ ...stored, spec: { ...stored.spec as object, externalTrafficPolicy } });
}

Deno.test("layer 2 follows a policy that changes: the node with an endpoint answers, or any", async () => {
  await using cluster = await startCluster(...WEB);
  const { api, start } = cluster;
  await using first = await start(A);
  await using second = await start(B);
  const relays = [first, second];
  await first.until("one answers", () => relays.some(({ held }) => held.length === 1));
  const owner = relays.find(({ held }) => held.length === 1)!;
  const other = relays.find((each) => each !== owner)!;
  api.store.update(rawSlice("web", [other === first ? A : B]));
  const answers = (relay: RoutingRelay) =>
    relays.every((each) => each.held.length === (each === relay ? 1 : 0));
  for (
    const [policy, expected] of [["Local", other], ["Cluster", owner], ["Local", other]] as const
  ) {
    setPolicy(api, policy);
    await expected.until(`one node answers with policy ${policy}`, () => answers(expected));
  }
  assertEquals(assigned(api, "web"), ["192.0.2.0"]);
});

Deno.test("another node takes addresses over when a heartbeat is renewed no longer", async () => {
  const leases = (["member", "heartbeat"] as const).map((kind) =>
    rawLease(kind, B, "2026-01-01T00:00:00.000000Z")
  );
  await using cluster = await startCluster(...FOUR, ...leases);
  const { api, clock, start } = cluster;
  await using relay = await start(A);
  await relay.until("all are assigned", () => assigned(api, "four").length > 0);
  await relay.until("the other node owns some", () => relay.held.length < 4);
  const at = clock.now();
  api.store.update(rawLease("heartbeat", B, "2026-01-01T00:00:05.000000Z"));
  await relay.until("this node owns all", () => relay.held.length === 4);
  const ms = clock.now() - at;
  assert(ms > 2_000 && ms <= 5_000, `after ${ms} ms`);
});

/** Services `one` to `four` with the addresses of a pool, of which each node owns two. */
const FOUR = ["one", "two", "three", "four"].flatMap((name, index) =>
  rawLoadBalancer(name, { clusterIP: `172.30.0.${index + 1}`, nodes: [A, B] })
);
const POOL_OF_BOTH = "--load-balancer-pools=192.0.2.8/30";
const OWNED = { [A]: ["192.0.2.8", "192.0.2.9"], [B]: ["192.0.2.10", "192.0.2.11"] };

/** The notes of Events about a Node. */
function notesOn(api: FakeApiServer, node: string, reason: string): readonly string[] {
  const events = collectionOf({ kind: "Event", apiVersion: "events.k8s.io/v1" });
  return api.store.list(events).filter((event) =>
    event.reason === reason && (event.regarding as { name: string }).name === node
  ).map(({ note }) => note as string);
}

/** How often a Lease was written after it was created. */
function writesOf(api: FakeApiServer, lease: string): number {
  return api.requests.filter(({ method, path }) => method === "PATCH" && path.endsWith(lease))
    .length;
}

function areBothOwners(first: RoutingRelay, second: RoutingRelay): boolean {
  return `${first.held}` === `${OWNED[A]}` && `${second.held}` === `${OWNED[B].toSorted()}`;
}

Deno.test("nodes with other pools: each address has the one owner that knows it, and nothing flaps", async () => {
  await using cluster = await startCluster(...FOUR);
  const { api, clock, start } = cluster;
  await using first = await start(A, POOL_OF_BOTH);
  await using second = await start(B, "--load-balancer-pools=192.0.2.8-192.0.2.10");
  const owned = () => `${first.held} ${second.held}`;
  await first.until(
    "each address has an owner that knows it",
    () => owned() === "192.0.2.11,192.0.2.8,192.0.2.9 192.0.2.10",
  );
  await first.until(
    "it is reported",
    () => notesOn(api, B, "LoadBalancerPoolsDiffer").length === 1,
    { stepMs: 1_000 },
  );
  assertStringIncludes(
    notesOn(api, B, "LoadBalancerPoolsDiffer")[0]!,
    "its pool 'default' has other addresses",
  );
  const moves = [first, second].map(({ backends }) => backends.calls.length);
  // The API server answers in real time: a minute in one go would be an outage.
  const [at, renewals] = [clock.now(), writesOf(api, `kube-relay-heartbeat-${A}`)];
  await first.until(
    "heartbeats go on for longer than a node lasts that is taken for dead",
    () => writesOf(api, `kube-relay-heartbeat-${A}`) >= renewals + 4 && clock.now() - at >= 5_000,
  );
  assertEquals([first, second].map(({ backends }) => backends.calls.length), moves, "no move");
  const { controllers } = await first.status();
  const facts = controllers![0]!.facts.map(({ text }) => text);
  assert(facts.includes("node node-b: its pool 'default' has other addresses"), facts.join("\n"));
});

Deno.test("a node whose interface loses its link gives its addresses to another node, and takes them back", async () => {
  await using cluster = await startCluster(...FOUR);
  const { api, clock, start } = cluster;
  await using first = await start(A, POOL_OF_BOTH);
  await using second = await start(B, POOL_OF_BOTH);
  await first.until("both own some", () => areBothOwners(first, second));
  const before = first.held;
  const plane = first.backends.planes.get("IPv4")!;
  const [link] = plane.network;
  // The kernel takes any letters for the name of an interface.
  plane.network = [{ ...link!, device: "brü0", obstacle: "no-carrier" }];
  const at = clock.now();
  await first.until(
    "the other node owns all",
    () => first.held.length === 0 && second.held.length === 4,
  );
  assert(clock.now() - at <= 3_000, `after ${clock.now() - at} ms`);
  await first.until(
    "it is reported",
    () => notesOn(api, A, "LoadBalancerInterfaceLost").length === 1,
    { stepMs: 1_000 },
  );
  const { controllers } = await first.status();
  const facts = controllers![0]!.facts.map(({ text }) => text);
  assert(
    facts.includes("node node-a: does not answer in 0.0.0.0/0: its interface brü0 has no carrier"),
    facts.join("\n"),
  );
  const dump = JSON.parse(await askControlText(second.socket, "/dump"));
  const reports: readonly Record<string, unknown>[] = dump.controllers.routing.reports;
  const links = [{ network: "0.0.0.0/0", device: "brü0", obstacle: "no-carrier" }];
  assertEquals(reports.find(({ node }) => node === A)?.links, links);
  plane.network = [link!];
  await first.until("it owns them again", () => `${first.held}` === `${before}`);
  plane.network = [{ ...link!, network: "10.99.0.0/24" as Cidr }];
  await first.until("the other node owns all again", () => second.held.length === 4);
  const [controller] = (await first.status()).controllers!;
  assert(
    controller!.facts.some(({ text }) =>
      text.includes("answers for no address of pool 'default': no interface has a network with one")
    ),
  );
});

Deno.test("an interface that flaps moves addresses and is written seldom, and answers again when it is steady", async () => {
  await using cluster = await startCluster(...FOUR);
  const { api, clock, start } = cluster;
  await using first = await start(A, POOL_OF_BOTH);
  await using second = await start(B, POOL_OF_BOTH);
  await first.until("both own some", () => areBothOwners(first, second));
  const plane = first.backends.planes.get("IPv4")!;
  const [link] = plane.network;
  const [at, writes] = [clock.now(), writesOf(api, `kube-relay-member-${A}`)];
  const { length: calls } = first.backends.calls;
  await first.until("it has flapped", () => {
    const isLost = Math.floor((clock.now() - at) / 1_000) % 2 === 0;
    plane.network = [{ ...link!, ...(isLost && { obstacle: "no-carrier" as const }) }];
    return clock.now() - at > 12_000;
  });
  const more = writesOf(api, `kube-relay-member-${A}`) - writes;
  assert(more >= 1 && more <= 5, `${more} writes`);
  const moves = (first.backends.calls.length - calls) / 2;
  assert(moves <= 5, `${moves} moves`);
  // It renews its heartbeat less often while it owns nothing, which the other one has to know.
  const expelled = second.lines.filter((line) => line.includes("does not renew its heartbeat"));
  assertEquals(expelled, []);
  plane.network = [link!];
  await first.until("both own some again", () => areBothOwners(first, second));
});

Deno.test("a node that is not ready for traffic answers only in the place of none", async () => {
  await using cluster = await startCluster(...FOUR);
  const { api, start } = cluster;
  await using first = await start(A, POOL_OF_BOTH);
  await using second = await start(B, POOL_OF_BOTH);
  const setConditions = (conditions: Readonly<Record<string, string>>) => {
    const node = rawNode(A, "192.168.0.2");
    const found = Object.entries(conditions).map(([type, status]) => ({ type, status }));
    api.store.update({ ...node, status: { ...node.status as object, conditions: found } });
  };
  await first.until("both own some", () => areBothOwners(first, second));
  const [before, after] = [first.held, second.held];
  for (const conditions of [{ Ready: "False" }, { Ready: "True", NetworkUnavailable: "True" }]) {
    setConditions(conditions);
    await first.until(
      "the other node owns all",
      () => first.held.length === 0 && second.held.length === 4,
    );
    setConditions({ Ready: "True", NetworkUnavailable: "False" });
    await first.until(
      "it owns them again",
      () => `${first.held}` === `${before}` && `${second.held}` === `${after}`,
    );
  }
  await second.stop();
  setConditions({ Ready: "False" });
  await first.until("it owns all, because no other node is ready", () => first.held.length === 4);
});

Deno.test("while the API server is away, addresses stay, unless another machine answers", async () => {
  await using cluster = await startCluster(...WEB);
  const { api, clock, start } = cluster;
  await using relay = await start(A);
  await relay.until("it answers", () => relay.held.length === 1);
  await api.kill();
  const plane = relay.backends.planes.get("IPv4")!;
  await relay.until("it looks for others", () => plane.searches > 3, { stepMs: 200 });
  assertEquals(relay.held, ["192.0.2.0"], "the owner stays");
  plane.conflicts = ["192.0.2.0" as never];
  const at = clock.now();
  await relay.until("it gives the address up", () => relay.held.length === 0);
  assert(clock.now() - at <= 1_500, `after ${clock.now() - at} ms`);
  const before = plane.searches;
  await clock.advance(3_000);
  assert(plane.searches - before <= 3, "it searches once a second");
  plane.searchFailures.push(new Error("ip: cannot fork"));
  await relay.until("a search fails", () => plane.searchFailures.length === 0);
  plane.conflicts = [];
  await api.restart();
  await relay.until("it answers again", () => relay.held.length === 1, { stepMs: 200 });
});

Deno.test("BGP announces what is served, and withdraws within a second", async (t) => {
  await using cluster = await startCluster(...rawLoadBalancer("web", {
    ...{ clusterIP: "172.30.0.41", nodes: [A], externalTrafficPolicy: "Local" },
  }));
  const { api, clock, start } = cluster;
  await using relay = await start(
    A,
    "--bgp",
    "--load-balancer-announce=bgp",
    "--bgp-peers=64513@198.51.100.1",
  );
  const { backends: { daemon, planes } } = relay;
  await relay.until("it is announced", () => daemon.announced.length === 1);
  assertEquals(daemon.announced, ["192.0.2.0/32"]);
  assertEquals(planes.size, 0, "layer 2 is not used");
  const leases = api.requests.filter(({ method, path }) =>
    method !== "GET" && path.includes("kube-relay-node")
  );
  assertEquals(leases, [], "a node needs no Lease");

  await t.step("the last local endpoint goes", async () => {
    const at = clock.now();
    api.store.update(rawSlice("web", [B]));
    await relay.until("it is withdrawn", () => daemon.announced.length === 0, { stepMs: 10 });
    assert(clock.now() - at < 1_000, `after ${clock.now() - at} ms`);
    api.store.update(rawSlice("web", [A]));
    await relay.until("it is announced", () => daemon.announced.length === 1);
  });
  await t.step("the policy changes", async () => {
    api.store.update(rawSlice("web", [B]));
    await relay.until("it is withdrawn", () => daemon.announced.length === 0);
    setPolicy(api, "Cluster");
    await relay.until("it is announced", () => daemon.announced.length === 1);
    setPolicy(api, "Local");
    await relay.until("it is withdrawn", () => daemon.announced.length === 0);
    api.store.update(rawSlice("web", [A]));
    await relay.until("it is announced", () => daemon.announced.length === 1);
  });
  await t.step("the node is excluded from load balancers", async () => {
    const label = "node.kubernetes.io/exclude-from-external-load-balancers";
    api.store.update(rawNode(A, "192.168.0.2", { metadata: { name: A, labels: { [label]: "" } } }));
    await relay.until("it is withdrawn", () => daemon.announced.length === 0);
    api.store.update(rawNode(A, "192.168.0.2"));
    await relay.until("it is announced", () => daemon.announced.length === 1);
  });
  await t.step(
    "a daemon that fails is reported and tried again, and Services stay healthy",
    async () => {
      daemon.failures.push(new Error("BIRD does not answer"));
      api.store.update(rawSlice("web", [B]));
      await relay.until("it is in quarantine", async () => {
        const { controllers } = await relay.status();
        const [loop] = controllers![0]!.families;
        return loop!.quarantined[0]?.reason === "BIRD does not answer";
      });
      await relay.until("it is withdrawn", () => daemon.announced.length === 0);
    },
  );
  await t.step("the status", async () => {
    const { controllers } = await relay.status();
    const [{ controller, summary }, ...others] = controllers![0]!.families as never as [
      { controller: string; summary: string },
    ];
    assertEquals([controller, others], ["bgp", []]);
    assertStringIncludes(summary, "BGP, AS 64512, 1 peer, 0 announced");
    assertStringIncludes(JSON.stringify(controllers![0]!.facts), "established");
  });
});

for (
  const { mode, after } of [
    { mode: "nftables", after: ["192.0.2.0/32"] },
    { mode: "userspace", after: [] },
  ] as const
) {
  Deno.test(`when kube-relay ends in mode ${mode}, BGP announces what is still served`, async () => {
    await using cluster = await startCluster(...WEB);
    const { api, clock } = cluster;
    const args = [
      `--load-balancer-pools=${POOL}`,
      ...["--bgp", "--load-balancer-announce=bgp", "--bgp-peers=64513@198.51.100.1"],
    ];
    const relay = await RoutingRelay.start({ node: A, api, clock, args, mode });
    const { backends: { daemon } } = relay;
    await relay.until("it is announced", () => daemon.announced.length === 1);
    const at = clock.now();
    await relay[Symbol.asyncDispose]();
    assertEquals(daemon.announced, after);
    const waitedMs = clock.now() - at;
    assertEquals(
      waitedMs >= 1_000,
      after.length === 0,
      `routers had ${waitedMs} ms to learn of it`,
    );
  });
}

Deno.test("a Service does not get the address and port of a BGP peer, also of the mesh or an annotation", async () => {
  const [service, slice] = rawLoadBalancer("web", {
    ...{ clusterIP: "172.30.0.41", nodes: [A], externalIPs: ["192.168.0.3", "198.51.100.7"] },
    ports: [{ port: 179, protocol: "TCP", targetPort: 8080 }],
  });
  await using cluster = await startCluster(service!, slice!);
  const { api, clock } = cluster;
  const args = ["--bgp", "--bgp-mesh", "--load-balancer-announce=bgp"];
  await using relay = await RoutingRelay.start({ node: A, api, clock, args, mode: "nftables" });
  const withheld = async () => {
    const { families } = await relay.status();
    return families.flatMap(({ quarantined }) => quarantined.map(({ reason }) => reason)).join(
      "\n",
    );
  };
  await relay.until(
    "the session with another node is kept",
    async () =>
      (await withheld()).includes("192.168.0.3 and port 179 are those of BGP peer node_node_b_v4"),
  );
  assert(!(await withheld()).includes("198.51.100.7"));
  const annotations = {
    "kube-router.io/peer.ips": "198.51.100.7",
    "kube-router.io/peer.asns": "64513",
  };
  const metadata = { name: A, labels: { "kubernetes.io/hostname": A }, annotations };
  api.store.update(rawNode(A, "192.168.0.2", { metadata }));
  await relay.until(
    "that of an annotation too",
    async () => (await withheld()).includes("198.51.100.7 and port 179 are those of BGP peer"),
  );
  api.store.update(rawNode(A, "192.168.0.2"));
  await relay.until(
    "it is given when the peer is gone",
    async () => !(await withheld()).includes("198.51.100.7"),
  );
});

Deno.test("a BGP daemon that hangs delays no address of layer 2", async () => {
  await using cluster = await startCluster(...WEB);
  await using relay = await cluster.start(A, "--bgp", "--bgp-peers=64513@198.51.100.1");
  const hanging = Promise.withResolvers<void>();
  relay.backends.daemon.hanging = hanging.promise;
  await relay.until("it answers", () => relay.held.length === 1);
  hanging.resolve();
});

Deno.test("a sync of routing that hangs makes the node unhealthy", async () => {
  await using cluster = await startCluster(...WEB);
  await using relay = await cluster.start(A, "--bgp", "--bgp-peers=64513@198.51.100.1");
  await relay.until("it is healthy", async () => (await relay.health())[0] === 200);
  const hanging = Promise.withResolvers<void>();
  relay.backends.daemon.hanging = hanging.promise;
  cluster.api.store.update(rawSlice("web", [A]));
  const startedAt = cluster.clock.now();
  const isLate = async () => (await relay.health())[0] === 503;
  await relay.until("it is noticed", isLate, { stepMs: 5_000 });
  assert(cluster.clock.now() - startedAt > 50_000, "it was noticed too early");
  const [, loops] = await relay.health();
  assertEquals([loops["IPv4"], Object.values(loops).includes(false)], [true, true]);
  hanging.resolve();
  await relay.until("it is healthy again", async () => (await relay.health())[0] === 200);
});

Deno.test("a run without routing reports nothing of it, and watches the kinds of Services alone", async () => {
  await using cluster = await startCluster(...WEB);
  const { api, clock } = cluster;
  await using relay = await RoutingRelay.start({ node: A, api, clock, isRouting: false });
  const paths = api.requests.filter(({ method }) => method === "GET").map(({ path }) => path);
  assertEquals([...new Set(paths)].sort(), [
    "/api/v1/nodes",
    "/api/v1/services",
    "/apis/discovery.k8s.io/v1/endpointslices",
    "/apis/networking.k8s.io/v1/servicecidrs",
  ]);
  assertEquals("controllers" in await relay.status(), false);
  const dump = JSON.parse(await askControlText(relay.socket, "/dump"));
  assertEquals("controllers" in dump, false);
  assertEquals(Object.keys((await relay.health())[1]), ["IPv4"]);
  assertEquals((await relay.metrics()).filter((line) => line.includes("routing")), []);
});

Deno.test("missing permissions are reported, delay no Service, and are asked for again", async () => {
  await using cluster = await startCluster(...WEB);
  const { api, start } = cluster;
  api.deniedAccess.add("patch /apis/coordination.k8s.io/v1/leases");
  await using relay = await start(A);
  await relay.until("Services work", () => relay.services[0]!.held.size > 0);
  await relay.until("it is reported", async () => {
    const { sources } = await relay.status();
    return sources.some(({ problems }) => problems[0]?.includes("patch leases.coordination"));
  });
  assertEquals(assigned(api, "web"), []);
  api.deniedAccess.clear();
  await relay.until("it answers", () => relay.held.length === 1, { stepMs: 500 });
});

Deno.test("without a cluster, the only node answers for the addresses that manifests have", () =>
  withFolder(async (folder) => {
    const [service, slice] = WEB;
    const status = { loadBalancer: { ingress: [{ ip: "192.0.2.1" }] } };
    const items = [{ ...service!, status }, slice!];
    await Deno.writeTextFile(`${folder}/web.yaml`, manifestText(items));
    const args = [`--manifests=${folder}`, `--load-balancer-pools=${POOL}`, "--bgp"];
    await using relay = await RoutingRelay.start({ node: A, clock: new FakeClock(), args });
    await relay.until("it answers", () => relay.held.length === 1);
    assertEquals(relay.held, ["192.0.2.1"]);
    await relay.until("BGP runs", () => relay.backends.daemon.plan !== undefined);
    const { controllers } = await relay.status();
    assertEquals(controllers![0]!.facts.map(({ name }) => name), ["Pool", "Layer 2", "Announced"]);
  }));

Deno.test("another machine that answers for an address is reported, and for a moment a former owner may", () =>
  withFolder(async (folder) => {
    const [service, slice] = WEB;
    const status = { loadBalancer: { ingress: [{ ip: "192.0.2.1" }] } };
    await Deno.writeTextFile(`${folder}/web.yaml`, manifestText([{ ...service!, status }, slice!]));
    const args = [`--manifests=${folder}`, `--load-balancer-pools=${POOL}`];
    await using relay = await RoutingRelay.start({ node: A, clock: new FakeClock(), args });
    await relay.until("it answers", () => relay.held.length === 1);
    const plane = relay.backends.planes.get("IPv4")!;
    const isShown = async () => {
      const { controllers } = await relay.status();
      return controllers![0]!.facts.some(({ text }) =>
        text === "node node-a: another machine, with link-layer address 02:00:00:00:00:07, " +
            "answers for 192.0.2.1"
      );
    };
    const warnings = () => relay.lines.filter((line) => line.includes("WARN  Another machine"));
    const search = async () => {
      const { searches } = plane;
      await relay.until("it searches", () => plane.searches > searches, { stepMs: 5_000 });
    };
    plane.conflicts = ["192.0.2.1" as never];
    await search();
    assertEquals([await isShown(), warnings().length], [false, 0], "once");
    await search();
    await relay.until("it is shown", isShown);
    for (let turn = 0; turn < 3; turn++) await search();
    assertEquals([relay.held, warnings().length], [["192.0.2.1"], 1], "the owner stays");
    plane.conflicts = [];
    await search();
    await relay.until("it is over", async () => !await isShown());
  }));

Deno.test("the network of pods waits for no Service, and a former one is removed without it", async () => {
  await using cluster = await startCluster();
  const { start } = cluster;
  const unassigned = { spec: {} };
  cluster.api.store.create(rawNode("node-c", "192.168.0.4", unassigned));
  {
    await using relay = await start(A, "--pod-routes");
    await relay.until("it is planned", () => relay.backends.pods.plan !== undefined);
    const { plan, cleanups } = relay.backends.pods;
    assertEquals([plan!.podCidrs as readonly string[], cleanups], [["10.180.0.0/24"], 0]);
    const { controllers } = await relay.status();
    const { families, facts } = controllers!.find(({ controller }) => controller === "routing")!;
    const { summary, quarantined } = families.find(({ controller }) =>
      controller === "pod-network"
    )!;
    assertStringIncludes(summary, "pod network, 0 routes");
    assertEquals(quarantined.map(({ key }) => key), ["Node node-b"], "it has the same range");
    assertEquals(facts.find(({ name }) => name === "Pods here")?.text, "10.180.0.0/24");
    const { pods } = relay.backends;
    const [before, at] = [pods.syncs, cluster.clock.now()];
    pods.linkChanged();
    await relay.until("a changed link has it synced", () => pods.syncs > before);
    assert(cluster.clock.now() - at < 5_000, `after ${cluster.clock.now() - at} ms`);
  }
  await using relay = await start(A);
  await relay.until("it is removed", () => relay.backends.pods.cleanups === 1);
});

Deno.test("the removal of a former network of pods is tried again until nothing of it is left", async () => {
  const [clock, backends, logger] = [
    new FakeClock(),
    new FakeRoutingBackends(),
    new MemoryLogger(),
  ];
  const { pods } = backends;
  pods.failures.push("tunnel kr-pod-1: busy", new Error("Cannot run 'ip': it took too long"));
  const { signal } = new AbortController();
  const parts = { clock, logger } as never;
  const removing = removePodNetwork(parts, backends, signal);
  await clock.advance(0);
  assertEquals([pods.cleanups, logger.lines[0]!.level], [1, "warn"]);
  await clock.advance(60_000);
  await removing;
  assertEquals([pods.cleanups, clock.pendingTimers], [3, 0]);
});

Deno.test("the cleanup removes addresses, the files of BIRD and routes to pods, whether or not routing is enabled", async () => {
  const routingBackends = new FakeRoutingBackends();
  const configuration = await configurationOf([]);
  const dependencies = { routingBackends, logger: new MemoryLogger() } as never;
  const removed: string[] = [];
  for await (const report of ROUTING_CONTROLLER.cleanUp(dependencies, configuration)) {
    removed.push(...report.removed);
  }
  assertEquals(removed, [
    ...["addresses of IPv4", "addresses of IPv6", "files of BIRD", "routes to pods"],
  ]);
});
