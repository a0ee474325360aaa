import { assertEquals } from "@std/assert";
import { ServiceTrafficTable } from "../../lib/proxy/service_traffic.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { ask, readToEnd, TcpServer, writeFully } from "../../tests/support/drivers/tcp_peers.ts";
import { UdpPeer } from "../../tests/support/drivers/udp_peer.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { TestUserspaceBackend } from "../../tests/support/stages/userspace_backend.ts";

const VIP = "127.96.3.1";
const UNSEEN = { packetsFromClients: 0, packetsToClients: 0 };

Deno.test("UserspaceBackend counts bytes and connections of a TCP Service, both ways", async () => {
  const table = new ServiceTrafficTable();
  const sent = 300_000;
  await using endpoint = TcpServer.start(async (connection) => {
    const { bytes } = await readToEnd(connection);
    await writeFully(connection, new Uint8Array(bytes / 10));
    await connection.closeWrite();
  });
  await using test = new TestUserspaceBackend({ traffic: table.of("IPv4") });
  const plan = testServicePlan({ clusterIp: VIP, port: unusedPort(), to: [endpoint.endpoint] });
  const idle = testServicePlan({ name: "idle", clusterIp: "127.96.3.2", port: unusedPort() });
  await test.sync([plan, idle]);
  using client = await Deno.connect({ hostname: VIP, port: plan.port });
  const traffic = () => table.of("IPv4").get(plan.name);
  await eventually("open", () => traffic()?.open === 1);
  await writeFully(client, new Uint8Array(sent));
  await client.closeWrite();
  assertEquals((await readToEnd(client)).bytes, sent / 10);
  await eventually("closed", () => traffic()?.open === 0);
  const expected = { bytesFromClients: sent, bytesToClients: sent / 10, opened: 1, open: 0 };
  assertEquals(traffic(), { ...expected, ...UNSEEN });
  const { services } = await test.backend.inspect();
  assertEquals(services.map(({ traffic }) => traffic), [expected, undefined]);
});

Deno.test("UserspaceBackend counts datagrams and flows of a UDP Service", async () => {
  const table = new ServiceTrafficTable();
  await using endpoint = UdpPeer.open({ answer: () => "four" });
  await using client = UdpPeer.open();
  await using test = new TestUserspaceBackend({ traffic: table.of("IPv4") });
  const at = { clusterIp: VIP, port: unusedPort(), protocol: "UDP" } as const;
  const plan = testServicePlan({ ...at, to: [endpoint.endpoint] });
  await test.sync([plan]);
  for (const text of ["one", "three"]) {
    await client.send(text, { hostname: VIP, port: at.port });
    await client.next();
  }
  await test.counters();
  const counted = { bytesFromClients: 8, bytesToClients: 8, opened: 1 };
  assertEquals(table.of("IPv4").get(plan.name), { ...counted, ...UNSEEN, open: 1 });
  await test.sync([testServicePlan(at)]);
  await test.counters();
  assertEquals(table.of("IPv4").get(plan.name), { ...counted, ...UNSEEN, open: 0 });
});

Deno.test("UserspaceBackend has no counters of a removed Service", async () => {
  const table = new ServiceTrafficTable();
  await using endpoint = TcpServer.named("a");
  await using test = new TestUserspaceBackend({ traffic: table.of("IPv4") });
  const plan = testServicePlan({ clusterIp: VIP, port: unusedPort(), to: [endpoint.endpoint] });
  await test.sync([plan]);
  await ask({ hostname: VIP, port: plan.port });
  await test.counters();
  assertEquals([...table.rows()].length, 1);
  await test.sync([]);
  assertEquals([...table.rows()], []);
});
