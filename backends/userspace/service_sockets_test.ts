import { assert, assertEquals, assertMatch } from "@std/assert";
import type { SyncReport } from "../../lib/proxy/data_plane.ts";
import { OpenFiles } from "../../lib/os/open_files.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { ask, isRefused, TcpServer } from "../../tests/support/drivers/tcp_peers.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { TestUserspaceBackend } from "../../tests/support/stages/userspace_backend.ts";

const VIP = "127.96.2.1";
const VIP2 = "127.96.2.2";

Deno.test("ServiceSockets hands a socket over when a port is renamed, without closing it", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const at = { clusterIp: VIP, port: unusedPort(), to: [a.endpoint] };
  await test.sync([testServicePlan({ ...at, portName: "http" })]);
  const report = await test.sync([testServicePlan({ ...at, portName: "web" })]);
  assertEquals(report.operations, { handedOverSockets: 1 });
  assertEquals(await ask({ hostname: VIP, port: at.port }), "a");
});

Deno.test("ServiceSockets opens the new socket before it closes the old one", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  await test.sync([testServicePlan({ clusterIp: VIP, port, to: [a.endpoint] })]);
  const report = await test.sync([testServicePlan({ clusterIp: VIP2, port, to: [a.endpoint] })]);
  assertEquals(report.operations, {
    openedSockets: 1,
    closedSockets: 1,
    acquiredAddresses: 1,
    releasedAddresses: 1,
  });
  assertEquals(await isRefused({ hostname: VIP, port }), true);
  assertEquals(await ask({ hostname: VIP2, port }), "a");
  const operations = test.addresses.calls.filter((call) => /^(acquire|release) /.test(call));
  assertEquals(operations, [`acquire ${VIP}`, `acquire ${VIP2}`, `release ${VIP}`]);
});

Deno.test("ServiceSockets quarantines a ServicePort whose port is in use, and serves the others", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const taken = testServicePlan({ name: "taken", clusterIp: VIP, port, to: [a.endpoint] });
  const free = testServicePlan({ name: "free", clusterIp: VIP2, port, to: [a.endpoint] });
  const other = TcpServer.named("other", { hostname: VIP, port });
  const { quarantined: [first, ...rest] } = await test.sync([taken, free]);
  assertEquals([first?.key, first?.address, rest], [taken.key, `${VIP}:${port}/TCP`, []]);
  assertMatch(first?.reason ?? "", /another program listens on port/);
  assertEquals(await test.served(taken), [`ClusterIP ${VIP}:${port} quarantined`]);
  assertEquals(await ask({ hostname: VIP2, port }), "a");
  await other[Symbol.asyncDispose]();
  const report = await test.sync([taken, free]);
  assertEquals([report.quarantined, report.services], [[], 1]);
  assertEquals(await ask({ hostname: VIP, port }), "a");
});

Deno.test("ServiceSockets quarantines a ServicePort once for all addresses beyond its share of sockets", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend({ openFiles: new OpenFiles(256) });
  const port = unusedPort();
  const at = { clusterIp: VIP, port, to: [a.endpoint] };
  const externalIps = Array.from({ length: 200 }, (_, index) => `127.96.3.${index + 1}`);
  const large = testServicePlan({ ...at, externalIps });
  for (let sync = 0; sync < 2; sync++) {
    const { quarantined } = await test.sync([large]);
    assertEquals(quarantined.map(({ key, address }) => [key, address]), [[large.key, "addresses"]]);
    assertMatch(quarantined[0]?.reason ?? "", /all addresses: this Service has \d+ listening/);
  }
  const states = (await test.served(large)).map((text) => text.split(" ").at(-1));
  assertEquals(new Set(states), new Set(["serving", "quarantined"]));
  const { quarantined } = await test.sync([testServicePlan(at)]);
  assertEquals(quarantined, []);
  assertEquals(await ask({ hostname: VIP, port }), "a");
});

Deno.test("a ServicePort without a share of sockets waits for one, and costs nothing until then", async () => {
  await using a = TcpServer.named("a");
  const openFiles = new OpenFiles(256);
  await using test = new TestUserspaceBackend({ openFiles });
  const refusals = () => openFiles.refused.get("listener") ?? 0;
  const port = unusedPort();
  const externalIps = Array.from({ length: 200 }, (_, index) => `127.96.4.${index + 1}`);
  const large = testServicePlan({ clusterIp: VIP, port, externalIps, to: [a.endpoint] });
  const few = testServicePlan({ clusterIp: VIP2, port, portName: "few", to: [a.endpoint] });
  await using _other = TcpServer.named("other", { hostname: externalIps[0]!, port });
  const addressesOf = ({ quarantined }: SyncReport) => quarantined.map(({ address }) => address);
  const first = await test.sync([few, large]);
  assertEquals([first.services, refusals() > 100], [2, true]);
  const problems = [`127.96.4.1:${port}/TCP`, "addresses"];
  assertEquals(addressesOf(first), problems);

  for (let retry = 0; retry < 2; retry++) {
    const before = refusals();
    const report = await test.sync([few, large]);
    // Every address that is claimed is refused again.
    assertEquals(refusals() - before, 0);
    assertEquals([report.services, report.operations, report.quarantined], [
      0,
      {},
      first.quarantined,
    ]);
  }

  // The other port of the Service goes, and its socket with it.
  await test.sync([large]);
  const freed = await test.sync([large]);
  assertEquals([freed.services, freed.operations], [1, { openedSockets: 1 }]);
  assertEquals(addressesOf(freed), problems);
  assertEquals((await test.sync([large])).services, 0);

  const smaller = { clusterIp: VIP, port, externalIps: externalIps.slice(0, 150) };
  const changed = testServicePlan({ ...smaller, to: [a.endpoint] });
  const before = refusals();
  assertEquals((await test.sync([changed])).services, 1);
  assertEquals(refusals() - before > 100, true);
});

Deno.test("ServiceSockets quarantines a ServicePort whose address is unavailable, until it is available", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const plan = testServicePlan({ clusterIp: VIP, port, to: [a.endpoint] });
  test.addresses.answers.set(VIP, { kind: "unavailable", reason: "not permitted" });
  const { quarantined } = await test.sync([plan]);
  assertEquals(quarantined.map(({ reason }) => reason), [
    `Cannot make ${VIP} local: not permitted`,
  ]);
  test.addresses.answers.delete(VIP);
  const report = await test.sync([plan]);
  assertEquals([report.quarantined, report.operations], [[], {
    openedSockets: 1,
    acquiredAddresses: 1,
  }]);
});

Deno.test("ServiceSockets serves a stand-in if an address can't be made local", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const standIn = { kind: "standIn", address: parseIpAddress("127.112.0.9") } as const;
  test.addresses.answers.set("10.96.0.1", standIn);
  const plan = testServicePlan({ clusterIp: "10.96.0.1", port, to: [a.endpoint] });
  await test.sync([plan]);
  assertEquals(await test.served(plan), [`StandIn 127.112.0.9:${port} serving`]);
  assertEquals(await ask({ hostname: "127.112.0.9", port }), "a");
});

Deno.test("ServiceSockets uses another port on a stand-in if the port is in use", async () => {
  await using a = TcpServer.named("a");
  const port = unusedPort();
  await using _other = TcpServer.named("other", { hostname: "127.112.0.8", port });
  await using test = new TestUserspaceBackend();
  const standIn = { kind: "standIn", address: parseIpAddress("127.112.0.8") } as const;
  test.addresses.answers.set("10.96.0.1", standIn);
  const plan = testServicePlan({ clusterIp: "10.96.0.1", port, to: [a.endpoint] });
  const { quarantined } = await test.sync([plan]);
  assertEquals(quarantined, []);
  const [served] = await test.served(plan);
  const [, other] = /^StandIn 127\.112\.0\.8:(\d+) serving$/.exec(served ?? "") ?? [];
  assert(Number(other) !== port);
  assertEquals(await ask({ hostname: "127.112.0.8", port: Number(other) }), "a");
});

Deno.test("ServiceSockets moves sockets when addresses get another place", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const port = unusedPort();
  const standIn = { kind: "standIn", address: parseIpAddress("127.112.0.7") } as const;
  test.addresses.answers.set(VIP, standIn);
  const plan = testServicePlan({ clusterIp: VIP, port, to: [a.endpoint] });
  await test.sync([plan]);
  test.addresses.answers.delete(VIP);
  test.addresses.renew = true;
  const report = await test.sync([plan], { serviceCidrs: [] });
  assertEquals(report.operations, { openedSockets: 1, closedSockets: 1 });
  assertEquals(await test.served(plan), [`ClusterIP ${VIP}:${port} serving`]);
  assertEquals(await ask({ hostname: VIP, port }), "a");
  assertEquals(await isRefused({ hostname: "127.112.0.7", port }), true);
});
