/**
 * Tests addresses and routes in a whole run, with fake data planes and an API server: assignment,
 * announcements, failover, and reports.
 *
 * @module
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { askControlText } from "../lib/app/control/control_client.ts";
import { renderStatus } from "../lib/app/status/status_text.ts";
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

const POOL = "192.0.2.0/30";
const [A, B] = ["node-a", "node-b"] as const;
const SERVICES = collectionOf({ kind: "Service", apiVersion: "v1" });
const WEB = rawLoadBalancer("web", { clusterIP: "172.30.0.41", nodes: [A, B] });

/** An API server with two Nodes, and a clock. */
async function startCluster(...objects: readonly ReturnType<typeof rawNode>[]) {
  const [api, clock] = [await FakeApiServer.start(), new FakeClock()];
  for (const object of [rawNode(A, "192.168.0.2"), rawNode(B, "192.168.0.3"), ...objects]) {
    api.store.create(object);
  }
  const start = (node: string, ...args: string[]) =>
    RoutingRelay.start({ node, api, clock, args: [`--load-balancer-pools=${POOL}`, ...args] });
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
      { name: "Pool", text: "default: 1 address in use, announced by layer2" },
      { name: "Allocator", text: "this node" },
      { name: "Layer 2", text: "192.0.2.0 of default/web: node-a" },
    ]);
    assertStringIncludes(controller!.families[0]!.summary, "layer 2, answers for 1");
    const text = renderStatus(status, {
      now: cluster.clock.wallNow(),
      columns: 100,
      timeZone: "UTC",
    });
    assertStringIncludes(text, "\nrouting\n");
  });
  await t.step("the dump", async () => {
    const dump = JSON.parse(await askControlText(relay.socket, { route: "/dump" }));
    assertEquals(dump.controllers.routing.pools[0].ranges, ["192.0.2.0-192.0.2.3"]);
    assert(dump.objects.leases.length === 2);
  });
  await t.step("the metrics", async () => {
    const lines = await relay.metrics();
    assert(lines.includes('kube_relay_layer2_addresses{ip_family="IPv4"} 1'));
    assert(lines.includes('kube_relay_load_balancer_status_writes_total{outcome="written"} 1'));
  });
  await t.step("a Service that is no load balancer any more", async () => {
    const [service] = WEB;
    const stored = api.store.list(SERVICES).find(({ metadata: { name } }) => name === "web")!;
    api.store.update({ ...stored, spec: { ...service!.spec as object, type: "ClusterIP" } });
    await relay.until("its status is cleared", () => assigned(api, "web").length === 0);
    await relay.until("nobody answers", () => relay.held.length === 0);
  });
});

Deno.test("another node takes an address over: after SIGTERM at once, after a kill when the Lease ends", async () => {
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
