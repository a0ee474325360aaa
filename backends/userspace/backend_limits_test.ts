import { assertEquals } from "@std/assert";
import { eventually } from "../../tests/support/eventually.ts";
import {
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { TcpServer } from "../../tests/support/drivers/tcp_peers.ts";
import { UdpPeer } from "../../tests/support/drivers/udp_peer.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { TestUserspaceBackend } from "../../tests/support/stages/userspace_backend.ts";

const VIP = "127.96.20.2";

function planOf(portName: string, options: TestServicePlan) {
  return testServicePlan({ clusterIp: VIP, port: unusedPort(), portName, ...options });
}

function placeOf({ port }: { readonly port: number }) {
  return { hostname: VIP, port };
}

/** Whether a connection is served; it stays open. */
async function isServed(connection: Deno.TcpConn): Promise<boolean> {
  await connection.write(new TextEncoder().encode("x")).catch(() => {});
  return await connection.read(new Uint8Array(9)).catch(() => null) !== null;
}

Deno.test("UserspaceBackend counts flows and connections of all ports of a Service for its limits", async () => {
  await using server = TcpServer.named("a");
  await using endpoint = UdpPeer.open({ answer: () => "yes" });
  await using client = UdpPeer.open();
  await using test = new TestUserspaceBackend();
  const edge = { maxPerClient: 1 };
  const tcp = planOf("tcp", { to: [server.endpoint], edge });
  const udp = planOf("udp", { to: [endpoint.endpoint], protocol: "UDP", edge });
  await test.sync([tcp, udp]);
  using open = await Deno.connect(placeOf(tcp));
  assertEquals(await isServed(open), true);
  await client.send("a", placeOf(udp));
  await eventually("the flow is refused", async () => (await test.counters()).udpLimited === 1);
  open.close();
  await eventually("the flow is admitted", async () => {
    await client.send("b", placeOf(udp));
    return (await test.counters()).udpFlows === 1;
  });
  using refused = await Deno.connect(placeOf(tcp));
  assertEquals(await isServed(refused), false);
  assertEquals((await test.counters()).tcpLimited, 1);
});

Deno.test("UserspaceBackend does not count connections of a removed port for the limits of its Service", async () => {
  await using server = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const edge = { maxConnections: 1 };
  const plans = ["one", "two"].map((name) => planOf(name, { to: [server.endpoint], edge }));
  await test.sync(plans);
  using open = await Deno.connect(placeOf(plans[0]!));
  assertEquals(await isServed(open), true);
  using refused = await Deno.connect(placeOf(plans[1]!));
  assertEquals(await isServed(refused), false);
  await test.sync([plans[1]!]);
  using admitted = await Deno.connect(placeOf(plans[1]!));
  assertEquals(await isServed(admitted), true);
});

Deno.test("UserspaceBackend counts a connection for no limits that came after it", async () => {
  await using server = TcpServer.named("a");
  await using test = new TestUserspaceBackend();
  const plan = planOf("one", { to: [server.endpoint] });
  const limited = { ...plan, edge: { maxPerClient: 1 } };
  await test.sync([limited]);
  const early = await Deno.connect(placeOf(plan));
  assertEquals(await isServed(early), true);
  await test.sync([plan]);
  await test.sync([limited]);
  using counted = await Deno.connect(placeOf(plan));
  assertEquals(await isServed(counted), true);
  early.close();
  await eventually("it has ended", async () => {
    const [service] = (await test.backend.inspect()).services;
    return service?.connections === 1;
  });
  using refused = await Deno.connect(placeOf(plan));
  assertEquals(await isServed(refused), false);
});
