import { assert, assertEquals, assertRejects } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { ConnectionJudge } from "../../../lib/policy/connection_judge.ts";
import { PolicyPlanner } from "../../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { IPV4_PLAN, setPod, setPolicy } from "../../../tests/support/builders/policy_objects.ts";
import {
  type TestServicePlan,
  testServicePlan,
} from "../../../tests/support/builders/service_plans.ts";
import { UdpPeer } from "../../../tests/support/drivers/udp_peer.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import { TestUserspaceBackend } from "../../../tests/support/stages/userspace_backend.ts";
import { parseProxyDatagram, proxyHeaderV2 } from "../proxy_protocol/proxy_header.ts";

const VIP = "127.96.19.2";
const TRUSTED: EdgeSettings = { acceptProxyUdpFrom: [parseCidr("127.0.0.0/8")] };

function planOf(edge: EdgeSettings, to: string, more: TestServicePlan = {}): ServicePlan {
  return testServicePlan({
    ...{ clusterIp: VIP, port: unusedPort(), protocol: "UDP", to: [to], edge, ...more },
  });
}

function placeOf({ port }: ServicePlan) {
  return { hostname: VIP, port: port as number };
}

/** A datagram of a client behind a proxy. */
function carried(client: string, text: string, port = 51_000): Uint8Array {
  const header = proxyHeaderV2({
    source: { address: parseIpAddress(client), port },
    destination: { address: parseIpAddress("203.0.113.1"), port: 53 },
  }, "UDP");
  return new Uint8Array([...header, ...new TextEncoder().encode(text)]);
}

/** Asks for a client behind a proxy and returns the answer; empty if there is none. */
async function askAs(proxy: UdpPeer, client: string, plan: ServicePlan): Promise<string> {
  await proxy.send(carried(client, "?"), placeOf(plan));
  return (await proxy.next()).text;
}

async function assertNoAnswer(proxy: UdpPeer, client: string, plan: ServicePlan): Promise<void> {
  await proxy.send(carried(client, "?"), placeOf(plan));
  await assertRejects(() => proxy.next(300));
}

Deno.test("UdpPort has a flow for each client behind a proxy that uses one port", async () => {
  await using endpoint = UdpPeer.open({ answer: (text) => text.toUpperCase() });
  await using proxy = UdpPeer.open();
  await using test = new TestUserspaceBackend();
  const plan = planOf(TRUSTED, endpoint.endpoint);
  await test.sync([plan]);
  const ports = new Map<string, number>();
  for (const [client, port] of [["192.0.2.1", 1], ["192.0.2.1", 2], ["2001:db8::7", 1]] as const) {
    for (const text of ["one", "two"]) {
      await proxy.send(carried(client, text, port), placeOf(plan));
      const { text: answer, from } = await proxy.next();
      assertEquals([answer, from], [text.toUpperCase(), placeOf(plan)], "without a header");
      const seen = await endpoint.next();
      assertEquals(seen.text, text, "without a header");
      assertEquals(ports.get(`${client} ${port}`) ?? seen.from.port, seen.from.port);
      ports.set(`${client} ${port}`, seen.from.port);
    }
  }
  assertEquals(new Set(ports.values()).size, 3, "each with a socket of its own");
  assertEquals((await test.counters()).udpFlows, 3);
});

Deno.test("UdpPort drops and counts datagrams of a trusted sender without a valid header", async () => {
  await using endpoint = UdpPeer.open({ answer: () => "yes" });
  await using proxy = UdpPeer.open();
  await using test = new TestUserspaceBackend();
  const plan = planOf(TRUSTED, endpoint.endpoint);
  await test.sync([plan]);
  const { counters } = test.backend.connections;
  const cut = carried("192.0.2.1", "").subarray(0, 20);
  for (const bad of ["query", "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\nquery", cut, ""]) {
    await proxy.send(bad, placeOf(plan));
  }
  await eventually("all are counted", () => counters.proxyHeaderErrors === 4);
  assertEquals([counters.udpDropped, counters.udpFlows, endpoint.pending], [4, 0, 0]);
  const [{ message = "", fields = {} } = {}] = test.logger.lines;
  assertEquals(message, "Dropped a datagram without a valid PROXY protocol header");
  assertEquals(fields.reason, "it does not begin with a PROXY header of version 2");
  assertEquals(await askAs(proxy, "192.0.2.1", plan), "yes");
});

Deno.test("UdpPort passes a header of an untrusted sender on as data", async () => {
  await using endpoint = UdpPeer.open();
  await using stranger = UdpPeer.open();
  await using test = new TestUserspaceBackend();
  const edge = { acceptProxyUdpFrom: [parseCidr("127.0.0.9/32")] };
  const plan = planOf(edge, endpoint.endpoint);
  await test.sync([plan]);
  const forged = carried("10.0.0.1", "query");
  await stranger.send(forged, placeOf(plan));
  assertEquals((await endpoint.next()).bytes, forged.length);
  assertEquals(test.backend.connections.counters.proxyHeaderErrors, 0);
});

Deno.test("UdpPort takes the proxy for the client of a header without addresses", async () => {
  await using endpoint = UdpPeer.open({ answer: (text) => text });
  await using proxy = UdpPeer.open();
  await using test = new TestUserspaceBackend();
  const plan = planOf({ ...TRUSTED, maxPerClient: 1 }, endpoint.endpoint);
  await test.sync([plan]);
  const local = Uint8Array.fromHex("0d0a0d0a000d0a515549540a20000000");
  await proxy.send(new Uint8Array([...local, 104, 105]), placeOf(plan));
  assertEquals((await proxy.next()).text, "hi");
});

Deno.test("UdpPort passes the carried addresses on to an endpoint that wants a header", async () => {
  await using proxy = UdpPeer.open();
  await using test = new TestUserspaceBackend();
  const socket = Deno.listenDatagram({ transport: "udp", hostname: "127.0.0.1", port: 0 });
  const { port } = socket.addr as Deno.NetAddr;
  const plan = planOf({ ...TRUSTED, sendProxyUdp: "v2" }, `127.0.0.1:${port}`);
  await test.sync([plan]);
  const datagram = carried("2001:db8::7", "query");
  await proxy.send(datagram, placeOf(plan));
  const [received] = await socket.receive();
  socket.close();
  const [header, expected] = [received, datagram].map(parseProxyDatagram);
  assert(header?.kind === "complete" && expected?.kind === "complete");
  assertEquals(header.carried, expected.carried);
  assertEquals(new TextDecoder().decode(received.subarray(header.length)), "query");
});

Deno.test("UdpForwarder applies source ranges, affinity and limits to the carried address", async () => {
  await using one = UdpPeer.open({ answer: () => "one" });
  await using two = UdpPeer.open({ answer: () => "two" });
  await using proxies = new globalThis.AsyncDisposableStack();
  await using test = new TestUserspaceBackend();
  const plan = testServicePlan({
    ...{ clusterIp: "127.96.19.3", port: unusedPort(), protocol: "UDP" },
    loadBalancerVips: [VIP],
    sourceRanges: [parseCidr("192.0.2.0/24")],
    affinityTimeoutSeconds: 60,
    to: [one.endpoint, two.endpoint].sort(),
    edge: { ...TRUSTED, maxPerClient: 2 },
  });
  await test.sync([plan]);
  const ask = (client: string) => askAs(proxies.use(UdpPeer.open()), client, plan);
  const [first, second] = [await ask("192.0.2.1"), await ask("192.0.2.2")];
  assertEquals([first, second].sort(), ["one", "two"]);
  assertEquals([await ask("192.0.2.1"), await ask("192.0.2.2")], [first, second]);
  const limited = async () => (await test.counters()).udpLimited;
  const ignored = (client: string) => assertNoAnswer(proxies.use(UdpPeer.open()), client, plan);
  await ignored("198.51.100.1");
  assertEquals(await limited(), 0);
  await ignored("192.0.2.1");
  assertEquals(await limited(), 1);
});

Deno.test("UdpForwarder judges the carried address by NetworkPolicies and shows it to watches", async () => {
  const pod = "127.44.19.5";
  const state = new PolicyState();
  const judge = new ConnectionJudge();
  setPod(state, "default/dns", { address: pod, labels: { app: "dns" } });
  setPod(state, "default/friend", { address: "10.1.0.3", labels: { app: "friend" } });
  setPolicy(state, "default/dns", {
    podSelector: { matchLabels: { app: "dns" } },
    policyTypes: ["Ingress"],
    ingress: [{ from: [{ podSelector: { matchLabels: { app: "friend" } } }] }],
  });
  const planner = new PolicyPlanner(state, { ...IPV4_PLAN, includesRemotePods: true });
  const changes = planner.update();
  for (const _ of judge.takeInSteps(planner.plan, changes));
  await using endpoint = UdpPeer.open({ hostname: pod, answer: () => "yes" });
  await using proxy = UdpPeer.open();
  await using test = new TestUserspaceBackend({ judge });
  const plan = planOf(TRUSTED, endpoint.endpoint);
  await test.sync([plan]);
  const { watches } = test.backend.connections;
  const query = { protocol: "UDP", to: plan.clusterIp, port: plan.port } as const;
  const watch = () => watches.ask("test", { query, now: systemClock.now() });
  watch();
  assertEquals(await askAs(proxy, "10.1.0.3", plan), "yes");
  await assertNoAnswer(proxy, "10.1.0.4", plan);
  assertEquals((await test.counters()).udpDenied, 1);
  assertEquals(watch().map(({ client, clientPort }) => `${client} ${clientPort}`), [
    "10.1.0.3 51000",
    "10.1.0.4 51000",
  ]);
});
