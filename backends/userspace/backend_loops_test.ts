import { assert, assertEquals, assertMatch } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { SocketAddress } from "../../lib/os/network.ts";
import type { Endpoint } from "../../lib/proxy/endpoint.ts";
import { explainPacket } from "../../lib/proxy/explain_packet.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { eventually } from "../../tests/support/eventually.ts";
import {
  testForward,
  testProxyPlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import type { NetworkTrick } from "../../tests/support/fakes/misleading_network.ts";
import { ask, isRefused, TcpServer } from "../../tests/support/drivers/tcp_peers.ts";
import { UdpPeer } from "../../tests/support/drivers/udp_peer.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { TestUserspaceBackend } from "../../tests/support/stages/userspace_backend.ts";

const VIP = "127.96.9.1";
const VIP2 = "127.96.9.2";
const VIP3 = "127.96.9.3";
/** An address of documentation that a test leads to where it likes. */
const FAR = "192.0.2.1";

/** As much as a loop may cost, where without a bound it takes thousands. */
const BOUNDED = { maxFlowsPerService: 100, maxConnectionsPerService: 100 };

/** Time for whatever goes round: connections through a Service that is in no loop. */
async function letOthersPass(test: TestUserspaceBackend, plans: readonly ServicePlan[]) {
  await using other = TcpServer.named("other");
  const port = unusedPort();
  const clusterIp = "127.96.9.99";
  await test.sync([
    ...plans,
    testServicePlan({ name: "bystander", clusterIp, port, to: [other.endpoint] }),
  ]);
  for (let turn = 0; turn < 20; turn++) {
    assertEquals(await ask({ hostname: clusterIp, port }), "other");
  }
  return { tcpAccepted: (await test.counters()).tcpAccepted - 20 };
}

/** A chain of Services, each with the address of the next as its endpoint, the last with that of the first. */
function circle(
  addresses: readonly string[],
  { port, protocol }: { readonly port: number; readonly protocol: "TCP" | "UDP" },
) {
  return addresses.map((clusterIp, index) => {
    const next = addresses[(index + 1) % addresses.length]!;
    return testServicePlan({
      name: `s${index}`,
      clusterIp,
      port,
      protocol,
      to: [next.includes(":") ? `[${next}]:${port}` : `${next}:${port}`],
    });
  });
}

for (const addresses of [[VIP], [VIP, VIP2], [VIP, VIP2, VIP3]]) {
  Deno.test(`UserspaceBackend sends nothing round a circle of ${addresses.length} Services`, async () => {
    await using test = new TestUserspaceBackend(BOUNDED);
    await using client = UdpPeer.open();
    const port = unusedPort();
    const udp = circle(addresses, { port, protocol: "UDP" });
    const tcp = circle(addresses, { port, protocol: "TCP" });
    const { quarantined } = await test.sync([...udp, ...tcp]);
    assertEquals(
      quarantined.map(({ key, address }) => [key, address]).sort(),
      [...udp, ...tcp].map(({ key }) => [key, undefined]).sort(),
    );
    assertMatch(quarantined[0]?.reason ?? "", /127\.96\.9\.\d:\d+: .*ns\/s\d\/UDP/);
    await client.send("x", { hostname: VIP, port });
    assertEquals(await isRefused({ hostname: VIP, port }), true);
    const { tcpAccepted } = await letOthersPass(test, [...udp, ...tcp]);
    assertEquals([(await test.counters()).udpFlows, tcpAccepted], [0, 0]);
  });
}

Deno.test("UserspaceBackend uses an endpoint again when it is no longer an address of a Service", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend(BOUNDED);
  const port = unusedPort();
  const web = testServicePlan({ name: "web", clusterIp: VIP, port, to: [`${VIP2}:${port}`] });
  const other = testServicePlan({ name: "other", clusterIp: VIP2, port });
  const free = await test.sync([web]);
  assertEquals([free.quarantined, await test.served(web)], [
    [],
    [`ClusterIP ${VIP}:${port} serving`],
  ]);
  // The frontend is added: the Service with this endpoint has not changed.
  const taken = await test.sync([web, other]);
  assertEquals(taken.quarantined.map(({ key }) => key), [web.key]);
  assertEquals(await test.served(web), [`ClusterIP ${VIP}:${port} refusing`]);
  // The frontend goes.
  assertEquals((await test.sync([web])).quarantined, []);
  await using b = TcpServer.named("b", { hostname: VIP2, port });
  assertEquals([await ask({ hostname: VIP, port }), b.accepted], ["b", 1]);
  // The endpoint becomes another one.
  await test.sync([web, other]);
  const corrected = testServicePlan({ name: "web", clusterIp: VIP, port, to: [a.endpoint] });
  assertEquals((await test.sync([corrected, other])).quarantined, []);
  assertEquals(await ask({ hostname: VIP, port }), "a");
});

function endpointsOf({ internal }: ServicePlan): readonly Endpoint[] {
  return internal.kind === "forward" ? internal.endpoints : [];
}

/** The endpoints that a packet to a Service may get, as `explain` says it. */
function eligible({ backend }: TestUserspaceBackend, service: ServicePlan): string[] {
  const { clusterIp: to, port } = service;
  const from = { kind: "node", address: to } as const;
  const packet = { from, to, port, protocol: "TCP" } as const;
  return explainPacket(testProxyPlan([service]), packet, backend).endpoints
    .flatMap(({ eligible, key }) => eligible ? [key] : []);
}

Deno.test("UserspaceBackend leaves out an endpoint that is a frontend, and uses the others", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend(BOUNDED);
  const [port, nodePort] = [unusedPort(), unusedPort()];
  const own = parseIpAddress("127.96.9.200");
  const web = testServicePlan({
    name: "web",
    clusterIp: VIP,
    port,
    nodePort,
    externalIps: ["127.96.9.100"],
    loadBalancerVips: ["127.96.9.101"],
    to: [
      a.endpoint,
      `${VIP}:${port}`,
      `127.96.9.100:${port}`,
      `127.96.9.101:${port}`,
      `${own}:${nodePort}`,
    ],
  });
  const { quarantined } = await test.sync([web], { nodePortAddresses: [own] });
  assertEquals(quarantined.map(({ key, address }) => [key, address]), [[web.key, "endpoints"]]);
  assertMatch(quarantined[0]?.reason ?? "", /and 3 more/);
  assertEquals(eligible(test, { ...web, endpoints: endpointsOf(web) }), [a.endpoint]);
  for (let turn = 0; turn < 6; turn++) assertEquals(await ask({ hostname: VIP, port }), "a");
  assertEquals(await ask({ hostname: own, port: nodePort }), "a");
  assertEquals((await test.counters()).tcpAccepted, 7, "each connection came in once");
});

Deno.test("UserspaceBackend forwards to addresses of this node that are no frontend", async () => {
  const own = parseIpAddress("127.96.9.200");
  await using a = TcpServer.named("a", { hostname: own });
  await using test = new TestUserspaceBackend(BOUNDED);
  const [port, nodePort] = [unusedPort(), unusedPort()];
  const web = testServicePlan({ clusterIp: VIP, port, nodePort, to: [a.endpoint] });
  // The node port of UDP is none of TCP, and another port of a Service's address is none of its own.
  const others = [
    testServicePlan({ name: "udp", clusterIp: VIP2, port, nodePort: a.port, protocol: "UDP" }),
    testServicePlan({ name: "port", clusterIp: own, port: unusedPort() }),
  ];
  const { quarantined } = await test.sync([web, ...others], { nodePortAddresses: [own] });
  assertEquals(quarantined, []);
  assertEquals(await ask({ hostname: VIP, port }), "a");
  assertEquals(await ask({ hostname: own, port: nodePort }), "a");
});

for (const wildcard of [false, true]) {
  const where = wildcard ? "all addresses" : "the address";
  Deno.test(`UserspaceBackend forwards to a program that has a frontend's port on ${where} of the node`, async () => {
    const own = parseIpAddress("127.96.9.200");
    const hostname = wildcard ? "0.0.0.0" : own;
    await using test = new TestUserspaceBackend(BOUNDED);
    const [port, nodePort] = [unusedPort(), unusedPort()];
    const to = [`${own}:${nodePort}`];
    // A Service of its own, and one whose endpoint is the other one's frontend.
    const plans = [
      testServicePlan({ name: "a", clusterIp: VIP, port, nodePort, to }),
      testServicePlan({ name: "b", clusterIp: VIP2, port, to }),
    ];
    const sync = () => test.sync(plans, { nodePortAddresses: [own] });
    const who = () => Promise.all(plans.map(({ clusterIp }) => ask({ hostname: clusterIp, port })));
    const { quarantined } = await sync();
    assertEquals(quarantined.map(({ key }) => key), plans.map(({ key }) => key));
    const program = TcpServer.named("program", { hostname, port: nodePort });
    const { quarantined: taken } = await sync();
    assertEquals(taken.map(({ address }) => address), [`${own}:${nodePort}/TCP`]);
    assertEquals(await who(), ["program", "program"]);
    // It stops, and finds its port free when it starts again.
    await program[Symbol.asyncDispose]();
    const { quarantined: gone } = await sync();
    assertEquals(gone.map(({ key }) => key), plans.map(({ key }) => key));
    await using again = TcpServer.named("again", { hostname, port: nodePort });
    await sync();
    assertEquals([await who(), again.accepted], [["again", "again"], 2]);
  });
}

Deno.test("UserspaceBackend treats the endpoint 0.0.0.0 as the loopback address to which it leads", async () => {
  await using test = new TestUserspaceBackend(BOUNDED);
  const [port, nodePort] = [unusedPort(), unusedPort()];
  const web = testServicePlan({ clusterIp: VIP, port, nodePort, to: [`0.0.0.0:${nodePort}`] });
  const { quarantined } = await test.sync([web], {
    nodePortAddresses: [parseIpAddress("127.0.0.1")],
  });
  assertEquals(quarantined.map(({ key }) => key), [web.key]);
  assertEquals(await isRefused({ hostname: "127.0.0.1", port: nodePort }), true);
});

Deno.test("UserspaceBackend forwards to a cluster IP that something else serves", async () => {
  await using a = TcpServer.named("a", { hostname: VIP2 });
  await using test = new TestUserspaceBackend({ ...BOUNDED, addressMode: "none" });
  const { port } = a;
  test.host.lo.add(parseIpAddress(VIP));
  const web = testServicePlan({ name: "web", clusterIp: VIP, port, to: [`${VIP2}:${port}`] });
  const other = testServicePlan({ name: "other", clusterIp: VIP2, port, to: ["127.0.0.1:1"] });
  assertEquals((await test.sync([web, other])).quarantined, []);
  assertEquals(await ask({ hostname: VIP, port }), "a");
});

Deno.test("UserspaceBackend has no endpoint among the addresses that stand in for cluster IPs", async () => {
  await using test = new TestUserspaceBackend({ ...BOUNDED, addressMode: "none" });
  const port = unusedPort();
  test.host.lo.add(parseIpAddress(VIP));
  const web = testServicePlan({ name: "web", clusterIp: VIP, port, to: [`127.112.0.21:${port}`] });
  const other = testServicePlan({ name: "other", clusterIp: VIP2, port, to: [`${VIP}:${port}`] });
  const { quarantined } = await test.sync([web, other]);
  assertEquals(quarantined.map(({ key }) => key).sort(), [other.key, web.key]);
  assertMatch(
    quarantined.find(({ key }) => key === web.key)?.reason ?? "",
    /127\.112\.0\.0\/12/,
  );
});

Deno.test("UserspaceBackend never lets a stand-in have the address and port of an endpoint", async () => {
  const options = { ...BOUNDED, family: "IPv6", addressMode: "none" } as const;
  await using test = new TestUserspaceBackend(options);
  const port = unusedPort();
  const plan = testServicePlan({ clusterIp: "fd00::1", port, to: [`[::1]:${port}`] });
  assertEquals((await test.sync([plan])).quarantined, []);
  const [served = ""] = await test.served(plan);
  assert(!served.includes(`:${port} `), served);
  await using a = TcpServer.named("a", { hostname: "::1", port });
  const standIn = Number(/:(\d+) serving$/.exec(served)?.[1]);
  assertEquals(await ask({ hostname: "::1", port: standIn }), "a");
  assertEquals(a.accepted, 1);
  // An endpoint that comes later, where the stand-in is already.
  const moved = { ...plan, internal: testForward(`[::1]:${port}`, `[::1]:${standIn}`) };
  assertEquals((await test.sync([moved])).quarantined, []);
  const [now = ""] = await test.served(moved);
  assert(!now.includes(`:${standIn} `), now);
});

Deno.test("UserspaceBackend publishes no port of its own that is for this machine only", async () => {
  await using metrics = TcpServer.named("metrics");
  await using test = new TestUserspaceBackend({
    localListeners: [{ hostname: "0.0.0.0", port: metrics.port }],
  });
  const port = unusedPort();
  const web = testServicePlan({ clusterIp: VIP, port, to: [metrics.endpoint] });
  const { quarantined } = await test.sync([web]);
  assertMatch(quarantined[0]?.reason ?? "", /answers more requests of local clients/);
  assertEquals(await isRefused({ hostname: VIP, port }), true);
});

/** Packets to {@linkcode FAR} return to an address of this machine. */
function hairpin(to: SocketAddress): NetworkTrick {
  return { detour: { from: FAR, to } };
}

function toldOnce({ logger }: TestUserspaceBackend): number {
  return logger.lines.filter(({ message }) => message.includes("came back to kube-relay")).length;
}

for (const reportTurns of [0, 10]) {
  Deno.test(`UserspaceBackend refuses connections of its own that come back to it and are reported ${reportTurns} turns late`, async () => {
    const port = unusedPort();
    const trick = { ...hairpin({ hostname: VIP, port }), reportTurns };
    await using test = new TestUserspaceBackend({ ...BOUNDED, trick });
    const plan = testServicePlan({ clusterIp: VIP, port, to: [`${FAR}:${port}`] });
    await test.sync([plan]);
    assertEquals(await ask({ hostname: VIP, port }).catch(() => ""), "");
    await eventually("the loop ended", async () => {
      const { tcpAccepted } = await letOthersPass(test, [plan]);
      const { services: [service] } = await test.backend.inspect([plan.key]);
      const later = await letOthersPass(test, [plan]);
      return service?.connections === 0 && later.tcpAccepted === tcpAccepted + 20;
    });
    assertEquals(toldOnce(test), 1);
  });
}

Deno.test("UserspaceBackend does not mistake a client with the port of a connection to an endpoint for itself", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend({ trick: { isPortShared: true } });
  const port = unusedPort();
  await test.sync([testServicePlan({ clusterIp: VIP, port, to: [a.endpoint] })]);
  using connection = await Deno.connect({ hostname: VIP, port });
  await connection.write(new TextEncoder().encode("who?"));
  const buffer = new Uint8Array(8);
  assertEquals(await connection.read(buffer), 1);
});

Deno.test("UserspaceBackend drops datagrams of its own that come back to it", async () => {
  await using client = UdpPeer.open();
  const port = unusedPort();
  await using test = new TestUserspaceBackend({
    ...BOUNDED,
    trick: hairpin({ hostname: VIP, port }),
  });
  const plan = testServicePlan({
    clusterIp: VIP,
    port,
    protocol: "UDP",
    to: [`${FAR}:${port}`],
  });
  await test.sync([plan]);
  for (let count = 0; count < 3; count++) await client.send("x", { hostname: VIP, port });
  const { counters } = test.backend.connections;
  await eventually("they came back", async () => {
    const { udpDropped, udpFlows } = await test.counters();
    return udpDropped + udpFlows >= 4;
  });
  await letOthersPass(test, [plan]);
  await test.counters();
  assertEquals([counters.udpFlows, counters.udpDropped, toldOnce(test)], [1, 3, 1]);
});

Deno.test("UserspaceBackend drops datagrams that bear the address of a frontend as their sender", async () => {
  await using endpoint = UdpPeer.open({ answer: (text) => text });
  await using forger = UdpPeer.open();
  const port = unusedPort();
  await using test = new TestUserspaceBackend({
    ...BOUNDED,
    trick: { forgery: { port: forger.port, sender: { hostname: VIP2, port } } },
  });
  const plans = [VIP, VIP2].map((clusterIp, index) =>
    testServicePlan({
      name: `s${index}`,
      clusterIp,
      port,
      protocol: "UDP",
      to: [endpoint.endpoint],
    })
  );
  await test.sync(plans);
  await forger.send("x", { hostname: VIP, port });
  await eventually("it came", async () => (await test.counters()).udpDropped === 1);
  assertEquals([(await test.counters()).udpFlows, endpoint.pending], [0, 0]);
});

Deno.test("UserspaceBackend looks at the Services of one address when a frontend is added or removed", async () => {
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const plans = Array.from(
    { length: 300 },
    (_, n) =>
      testServicePlan({
        name: `s${n}`,
        clusterIp: `127.97.${n >> 8}.${n & 255}`,
        port,
        to: [n < 2 ? `${VIP}:${port}` : "127.0.0.1:1"],
      }),
  );
  await test.sync(plans);
  const frontend = testServicePlan({ name: "frontend", clusterIp: VIP, port, to: ["127.0.0.1:1"] });
  const came = await test.sync([...plans, frontend]);
  assertEquals([came.services, came.quarantined.length], [3, 2]);
  const went = await test.sync(plans);
  assertEquals([went.services, went.quarantined.length], [3, 0]);
});
