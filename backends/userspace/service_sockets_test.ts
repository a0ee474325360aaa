import { assert, assertEquals, assertMatch } from "@std/assert";
import type { SyncReport } from "../../lib/proxy/data_plane.ts";
import { OpenFiles } from "../../lib/os/open_files.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
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
  const changes = test.host.batchLines.map((line) => /^addr (.*)\/32/.exec(line)?.[1]);
  assertEquals(changes.slice(-3), [`add ${VIP}`, `add ${VIP2}`, `del ${VIP}`]);
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
  test.host.refused.add(parseIpAddress(VIP));
  const { quarantined } = await test.sync([plan]);
  assertEquals(quarantined.length, 1);
  assertMatch(quarantined[0]!.reason, /^Cannot make 127\.96\.2\.1 local: .*No buffer space/);
  test.host.refused.clear();
  const report = await test.sync([plan]);
  assertEquals([report.quarantined, report.operations], [[], {
    openedSockets: 1,
    acquiredAddresses: 1,
  }]);
});

Deno.test("ServiceSockets serves a stand-in if an address can't be made local, on another port if its own is in use", async () => {
  await using a = TcpServer.named("a");
  const port = unusedPort();
  const plan = testServicePlan({ clusterIp: "10.96.0.1", port, to: [a.endpoint] });
  const served = async () => {
    await using test = new TestUserspaceBackend({ addressMode: "none" });
    assertEquals((await test.sync([plan])).quarantined, []);
    const [text = ""] = await test.served(plan);
    const [, hostname = "", at] = /^StandIn (127\.1[12].*):(\d+) serving$/.exec(text) ?? [];
    assertEquals(await ask({ hostname, port: Number(at) }), "a");
    return { hostname, port: Number(at) };
  };
  const { hostname, port: own } = await served();
  assertEquals(own, port);
  await using _other = TcpServer.named("other", { hostname, port });
  assert((await served()).port !== port);
});

Deno.test("ServiceSockets moves sockets when addresses get another place", async () => {
  await using a = TcpServer.named("a");
  await using test = new TestUserspaceBackend({ addressMode: "anyip" });
  const port = unusedPort();
  test.host.refused.add(parseIpAddress(VIP));
  const plan = testServicePlan({ clusterIp: VIP, port, to: [a.endpoint] });
  assertEquals((await test.sync([plan])).quarantined.length, 1);
  const serviceCidrs = [parseCidr("127.96.2.0/24")];
  const report = await test.sync([plan], { serviceCidrs });
  assertEquals(report.operations, { openedSockets: 1, acquiredAddresses: 1 });
  assertEquals(await ask({ hostname: VIP, port }), "a");
});
