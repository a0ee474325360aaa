import { assert, assertEquals, assertRejects } from "@std/assert";
import { type IpAddress, parseIpAddress } from "../../lib/net/ip_address.ts";
import { CommandError } from "../../lib/os/command_runner.ts";
import { type Network, systemNetwork } from "../../lib/os/network.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { createMemoryStore } from "../../tests/support/drivers/listed_addresses.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { isMissing } from "../../tests/support/requirement.ts";
import { testForward, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { ask, isRefused, TcpServer } from "../../tests/support/drivers/tcp_peers.ts";
import { UdpPeer } from "../../tests/support/drivers/udp_peer.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { TestUserspaceBackend } from "../../tests/support/stages/userspace_backend.ts";

const VIP = "127.96.1.1";
const VIP2 = "127.96.1.2";

/** Asks a Service by TCP until it is another one's turn, and so on: the names in order. */
async function askTimes(count: number, address: { hostname: string; port: number }) {
  const names: string[] = [];
  for (let index = 0; index < count; index++) names.push(await ask(address));
  return names;
}

Deno.test("UserspaceBackend.sync() serves a Service on its cluster IP", async () => {
  await using a = TcpServer.named("a");
  await using b = TcpServer.named("b");
  // Each thread has a rotation of its own.
  await using test = new TestUserspaceBackend({ workers: 0 });
  const port = unusedPort();
  const report = await test.sync([
    testServicePlan({ clusterIp: VIP, port, to: [a.endpoint, b.endpoint] }),
  ]);
  assertEquals(report, {
    full: true,
    services: 1,
    operations: { openedSockets: 1, acquiredAddresses: 1 },
    quarantined: [],
  });
  const names = await askTimes(4, { hostname: VIP, port });
  assertEquals([...names].sort(), ["a", "a", "b", "b"]);
  assert(names[0] !== names[1], "round robin is exact");
});

Deno.test("UserspaceBackend.sync() asks for an address once, and gives it back after the last use", async () => {
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const planOf = (clusterIp: string, to = "127.0.0.1:1") =>
    testServicePlan({ name: clusterIp, clusterIp, port, to: [to] });
  const [one, two, three] = [VIP, VIP2, "127.96.1.3"].map((each) => planOf(each));
  // Two ports of one address, of which the last one gives it back.
  const other = { ...one!, ...testServicePlan({ clusterIp: VIP, port: unusedPort() }) };
  await test.sync([]);
  let seen = test.host.batchLines.length;
  const rows: readonly (readonly [services: readonly ServicePlan[], ...changes: string[]])[] = [
    [[one!], `add ${VIP}`],
    [[planOf(VIP, "127.0.0.1:2")]],
    [[one!, two!], `add ${VIP2}`],
    [[one!, two!, three!], "add 127.96.1.3"],
    [[one!, other], `del ${VIP2}`, "del 127.96.1.3"],
    [[other]],
    [[], `del ${VIP}`],
    [[one!], `add ${VIP}`],
  ];
  for (const [services, ...changes] of rows) {
    await test.sync(services);
    const lines = test.host.batchLines.slice(seen);
    seen += lines.length;
    assertEquals(lines.map((line) => /^addr (.*)\/32/.exec(line)?.[1]), changes);
  }
});

Deno.test("UserspaceBackend.sync() does not list the interfaces of the machine", async () => {
  const network: Network = {
    ...systemNetwork,
    interfaceAddresses() {
      throw new Error("Too many open files (os error 24)");
    },
  };
  await using test = new TestUserspaceBackend({ network });
  const plan = testServicePlan({ clusterIp: VIP, port: unusedPort(), to: ["127.0.0.1:1"] });
  const { operations } = await test.sync([plan], { interfaceAddresses: [parseIpAddress(VIP2)] });
  assertEquals(operations, { openedSockets: 1, acquiredAddresses: 1 });
});

Deno.test("UserspaceBackend.sync() of a part of the plan releases nothing that an earlier run left", async () => {
  const store = createMemoryStore();
  const left = parseIpAddress(VIP2);
  await store.save({ addresses: new Set([left]), routes: new Set(), standIns: new Map() });
  await using test = new TestUserspaceBackend({ store });
  test.host.lo.add(left);
  const plan = testServicePlan({ clusterIp: VIP, port: unusedPort(), to: ["127.0.0.1:1"] });
  await test.sync([plan], { isPartial: true });
  assertEquals([...test.host.lo].sort(), [VIP, VIP2] as IpAddress[]);
  await test.sync([plan]);
  assertEquals([...test.host.lo], [VIP] as IpAddress[]);
});

Deno.test("UserspaceBackend.sync() keeps sockets over endpoint changes", async () => {
  await using a = TcpServer.named("a");
  await using b = TcpServer.named("b");
  await using test = new TestUserspaceBackend();
  const at = { clusterIp: VIP, port: unusedPort() };
  await test.sync([testServicePlan({ ...at, to: [a.endpoint] })]);
  assertEquals(await ask({ hostname: VIP, port: at.port }), "a");
  const report = await test.sync([testServicePlan({ ...at, to: [b.endpoint] })]);
  assertEquals([report.operations, report.services], [{}, 1]);
  assertEquals(await ask({ hostname: VIP, port: at.port }), "b");
});

Deno.test("UserspaceBackend.sync() looks only at changes", async () => {
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const plans = Array.from(
    { length: 300 },
    (_, n) =>
      testServicePlan({
        name: `s${n}`,
        clusterIp: `127.96.${2 + (n >> 8)}.${n & 255}`,
        port,
        to: ["127.0.0.1:1"],
      }),
  );
  const first = await test.sync(plans);
  assertEquals(first.operations, { openedSockets: 300, acquiredAddresses: 300 });
  const changed = { ...plans[7]!, internal: testForward("127.0.0.1:2") };
  const second = await test.sync(plans.with(7, changed));
  assertEquals([second.services, second.operations, second.full], [1, {}, false]);
  const third = await test.sync(plans.toSpliced(7, 1));
  assertEquals([third.services, third.operations], [1, { closedSockets: 1, releasedAddresses: 1 }]);
});

Deno.test("UserspaceBackend refuses for a Service without endpoints, and serves it once it has some", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const at = { clusterIp: VIP, port: unusedPort() };
  const address = { hostname: VIP, port: at.port };
  const empty = testServicePlan(at);
  await test.sync([empty]);
  assertEquals(await isRefused(address), true);
  assertEquals(await test.served(empty), [`ClusterIP ${VIP}:${at.port} refusing`]);
  const full = testServicePlan({ ...at, to: [a.endpoint] });
  await test.sync([full]);
  assertEquals(await ask(address), "a");
  assertEquals(await test.served(full), [`ClusterIP ${VIP}:${at.port} serving`]);
  await test.sync([testServicePlan(at)]);
  assertEquals(await isRefused(address), true);
});

Deno.test("UserspaceBackend serves external, load balancer and node addresses", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const [port, nodePort] = [unusedPort(), unusedPort()];
  const plan = testServicePlan({
    clusterIp: VIP,
    port,
    nodePort,
    to: [a.endpoint],
    externalIps: ["127.96.1.3"],
    loadBalancerVips: ["127.96.1.4"],
  });
  const nodePortAddresses = ["127.96.1.5", "127.96.1.6"].map(parseIpAddress);
  await test.sync([plan], { nodePortAddresses });
  for (const hostname of [VIP, "127.96.1.3", "127.96.1.4"]) {
    assertEquals(await ask({ hostname, port }), "a");
    assertEquals(await isRefused({ hostname, port: nodePort }), true);
  }
  for (const hostname of nodePortAddresses) {
    assertEquals(await ask({ hostname, port: nodePort }), "a");
  }
  assertEquals(test.host.lo.size, 3, "the node's addresses are its own");
  const report = await test.sync([plan], { nodePortAddresses: nodePortAddresses.slice(1) });
  assertEquals(report.operations, { closedSockets: 1 });
  assertEquals(await isRefused({ hostname: "127.96.1.5", port: nodePort }), true);
});

Deno.test("UserspaceBackend lets connections finish when their endpoint or their Service is removed", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const at = { clusterIp: VIP, port: unusedPort() };
  await test.sync([testServicePlan({ ...at, to: [a.endpoint] })]);
  using client = await Deno.connect({ hostname: VIP, port: at.port });
  const answer = async () => {
    await client.write(new TextEncoder().encode("?"));
    const buffer = new Uint8Array(8);
    return new TextDecoder().decode(buffer.subarray(0, await client.read(buffer) ?? 0));
  };
  assertEquals(await answer(), "a");
  await test.sync([testServicePlan({ ...at, to: ["127.0.0.1:1"] })]);
  assertEquals(await answer(), "a");
  await test.sync([]);
  assertEquals(await isRefused({ hostname: VIP, port: at.port }), true);
  assertEquals(await answer(), "a");
});

Deno.test("UserspaceBackend.sync() can be called again with the same changes after it threw", async () => {
  await using a = TcpServer.named("a");
  await using b = TcpServer.named("b");
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const planA = testServicePlan({ name: "a", clusterIp: VIP, port, to: [a.endpoint] });
  const planB = testServicePlan({ name: "b", clusterIp: VIP2, port, to: [b.endpoint] });
  await test.sync([planA]);
  test.host.runner.failNext("timeout");
  await assertRejects(() => test.sync([planB]), CommandError);
  const report = await test.sync([planB]);
  assertEquals(report.operations, {
    openedSockets: 1,
    closedSockets: 1,
    acquiredAddresses: 1,
    releasedAddresses: 1,
  });
  assertEquals(await isRefused({ hostname: VIP, port }), true);
  assertEquals(await ask({ hostname: VIP2, port }), "b");
});

Deno.test("UserspaceBackend quarantines SCTP, and names the modes that support it", async () => {
  await using test = new TestUserspaceBackend();
  const plan = testServicePlan({ clusterIp: VIP, protocol: "SCTP", to: ["127.0.0.1:1"] });
  const { quarantined } = await test.sync([plan]);
  assertEquals(quarantined.map(({ key, address }) => [key, address]), [[plan.key, undefined]]);
  assertEquals((await test.sync([])).quarantined, []);
});

Deno.test("UserspaceBackend counts flows that move, and ends those of a removed Service", async () => {
  await using a = UdpPeer.open({ answer: () => "a" });
  await using b = UdpPeer.open({ answer: () => "b" });
  await using client = UdpPeer.open();
  await using test = new TestUserspaceBackend();
  const at = { clusterIp: VIP, port: unusedPort(), protocol: "UDP" } as const;
  const address = { hostname: VIP, port: at.port };
  await test.sync([testServicePlan({ ...at, to: [a.endpoint] })]);
  await client.send("x", address);
  assertEquals((await client.next()).text, "a");
  const plan = testServicePlan({ ...at, to: [b.endpoint] });
  assertEquals((await test.sync([plan])).operations, { movedFlows: 1 });
  await client.send("x", address);
  assertEquals((await client.next()).text, "b");
  const { services: [inspected] } = await test.backend.inspect([plan.key]);
  assertEquals(inspected?.connections, 1);
  await test.sync([]);
  assertEquals((await test.backend.inspect([plan.key])).services, []);
});

Deno.test("UserspaceBackend.inspect() reports all Services, or only the requested ones", async () => {
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const plans = [VIP, VIP2].map((clusterIp, n) =>
    testServicePlan({ name: `s${n}`, clusterIp, port, to: ["127.0.0.1:1"] })
  );
  test.host.refused.add(parseIpAddress(VIP2));
  await test.sync(plans);
  const all = await test.backend.inspect();
  assertEquals([all.services.length, all.quarantined.length], [2, 1]);
  const one = await test.backend.inspect([plans[0]!.key]);
  assertEquals(one.services.map(({ key, connections }) => [key, connections]), [
    [plans[0]!.key, 0],
  ]);
  const workers = test.pool ? `; ${test.pool.count} workers forward` : "";
  assertEquals([one.quarantined, one.summary], [[], `${test.addresses.summary}${workers}`]);
});

Deno.test("UserspaceBackend.drain() accepts no new connections and waits for open ones", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const at = { clusterIp: VIP, port: unusedPort() };
  await test.sync([testServicePlan({ ...at, to: [a.endpoint] })]);
  const client = await Deno.connect({ hostname: VIP, port: at.port });
  await eventually("connected", () => a.accepted === 1);
  let drained = false;
  const drain = test.backend.drain(60_000).then(() => drained = true);
  // A connection that is in the kernel's queue when the socket closes is reset.
  const refused = () => isRefused({ hostname: VIP, port: at.port }).catch(() => false);
  await eventually("refused", refused);
  assertEquals(drained, false);
  client.close();
  await drain;
});

Deno.test("UserspaceBackend.drain() waits no longer than requested", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const at = { clusterIp: VIP, port: unusedPort() };
  await test.sync([testServicePlan({ ...at, to: [a.endpoint] })]);
  using _client = await Deno.connect({ hostname: VIP, port: at.port });
  await eventually("connected", () => a.accepted === 1);
  await test.backend.drain(20);
  assertEquals(a.open, 1);
});

Deno.test("UserspaceBackend needs nothing before start() and leaves nothing after dispose", async () => {
  const test = new TestUserspaceBackend();
  assertEquals(test.host.runner.calls, []);
  await test.backend.start();
  assertEquals([test.backend.mode, test.backend.family], ["userspace", "IPv4"]);
  await test[Symbol.asyncDispose]();
});

Deno.test({
  name: "UserspaceBackend serves IPv6, TCP and UDP",
  ignore: isMissing("UserspaceBackend over IPv6", [["the address ::1", hasIpv6Loopback()]]),
  async fn() {
    await using a = TcpServer.named("a", { hostname: "::1" });
    await using b = UdpPeer.open({ answer: () => "b", hostname: "::1" });
    await using client = UdpPeer.open({ hostname: "::1" });
    await using test = new TestUserspaceBackend({ family: "IPv6" });
    const at = { clusterIp: "::1", port: unusedPort() };
    const tcp = testServicePlan({ ...at, to: [`[::1]:${a.port}`] });
    const udp = testServicePlan({ ...at, protocol: "UDP", to: [`[::1]:${b.port}`] });
    await test.sync([tcp, udp]);
    const address = { hostname: "::1", port: at.port };
    assertEquals(await ask(address), "a");
    await client.send("x", address);
    assertEquals(await client.next(), { text: "b", bytes: 1, from: address });
  },
});

function hasIpv6Loopback(): boolean {
  return Deno.networkInterfaces().some(({ address }) => address === "::1");
}

Deno.test("UserspaceBackend leaks nothing over 2,000 connections that end in every way", async () => {
  await using a = TcpServer.named("a");
  await using b = TcpServer.start(() => Promise.resolve());
  await using test = new TestUserspaceBackend();
  const plan = testServicePlan({
    clusterIp: VIP,
    port: unusedPort(),
    // One that answers, one that hangs up at once, one that refuses.
    to: [a.endpoint, b.endpoint, "127.0.0.1:1"],
  });
  await test.sync([plan]);
  const rss: number[] = [];
  for (let round = 0; round < 8; round++) {
    await Promise.all(Array.from({ length: 250 }, (_, index) => useOnce(plan.port, index)));
    rss.push(Deno.memoryUsage().rss);
  }
  const open = async () => (await test.backend.inspect([plan.key])).services[0]?.connections;
  await eventually("all sessions are over", async () => await open() === 0);
  assertEquals([
    (await test.counters()).tcpAccepted,
    (await test.counters()).tcpRefused,
  ], [2000, 0]);
  assertEquals(await askTimes(3, { hostname: VIP, port: plan.port }).then((n) => n.length), 3);
  const grown = rss.at(-1)! - rss[1]!;
  // A buffer of 64 KiB lost with each connection would be 94 MiB.
  assert(grown < 64 * 1024 * 1024, `memory grew by ${grown} bytes over 1,500 connections`);
});

/** Uses a connection to the Service in one of several ways. Any end of it is right but hanging. */
async function useOnce(port: number, way: number): Promise<void> {
  using client = await Deno.connect({ hostname: VIP, port });
  try {
    if (way % 4 === 0) return;
    await client.write(new TextEncoder().encode("x".repeat(way % 4 === 1 ? 1 : 100_000)));
    if (way % 4 === 3) return;
    await client.closeWrite();
    const buffer = new Uint8Array(1024);
    while (await client.read(buffer) !== null);
  } catch {
    // The endpoint that hangs up at once resets.
  }
}
