import { assertEquals } from "@std/assert";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import {
  type TestServicePlan,
  testServicePlan,
} from "../../../tests/support/builders/service_plans.ts";
import { ask, TcpServer } from "../../../tests/support/drivers/tcp_peers.ts";
import { UdpPeer } from "../../../tests/support/drivers/udp_peer.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { TestUserspaceBackend } from "../../../tests/support/stages/userspace_backend.ts";
import { WatchedWorkers } from "../../../tests/support/stages/watched_workers.ts";

const VIP = "127.96.21.2";

function planOf(options: TestServicePlan): ServicePlan {
  return testServicePlan({ clusterIp: VIP, port: unusedPort(), ...options });
}

function placeOf({ clusterIp: hostname, port }: ServicePlan) {
  return { hostname, port };
}

Deno.test("a worker that waits for the admission of a flow forwards everything else", async () => {
  await using server = TcpServer.named("a");
  await using endpoint = UdpPeer.open({ answer: () => "yes" });
  await using client = UdpPeer.open();
  const workers = new WatchedWorkers();
  await using test = new TestUserspaceBackend({ workers: 1, spawn: workers.spawn });
  const tcp = planOf({ to: [server.endpoint], portName: "tcp" });
  const [udp, limited] = ["udp", "limited"].map((portName) =>
    planOf({
      ...{ to: [endpoint.endpoint], portName, name: portName, protocol: "UDP" },
      ...(portName === "limited" && { edge: { maxConnections: 7 } }),
    })
  ) as [ServicePlan, ServicePlan];
  await test.sync([tcp, udp, limited]);
  const release = workers.hold("admit");
  await client.send("a", placeOf(limited));
  await eventually("the worker asks", () => workers.held("admit") === 1);
  assertEquals(await ask(placeOf(tcp)), "a");
  await client.send("b", placeOf(udp));
  assertEquals((await client.next()).from.port, udp.port);
  release();
  assertEquals((await client.next()).from.port, limited.port);
});

Deno.test("a connection that is asked about while its limit is removed counts for no later limit", async () => {
  await using server = TcpServer.named("a");
  await using endpoint = UdpPeer.open({ answer: () => "a" });
  for (const protocol of ["TCP", "UDP"] as const) {
    const workers = new WatchedWorkers();
    await using test = new TestUserspaceBackend({
      ...{ workers: 1, spawn: workers.spawn, udpTimeoutMs: 2_000 },
    });
    const plan = planOf({
      to: [protocol === "TCP" ? server.endpoint : endpoint.endpoint],
      protocol,
    });
    const limited = { ...plan, edge: { maxConnections: 1 } };
    const exchange = async () => {
      if (protocol === "TCP") return await ask(placeOf(plan)).catch(() => "");
      await using client = UdpPeer.open();
      await client.send("?", placeOf(plan));
      return await client.next().then(({ text }) => text, () => "");
    };
    await test.sync([limited]);
    const release = workers.hold("admit");
    const asking = exchange();
    await eventually("the worker asks", () => workers.held("admit") === 1);
    await test.sync([plan]);
    release();
    assertEquals(await asking, "a");
    await eventually("it has ended", async () => {
      const { services: [service] } = await test.backend.inspect([plan.key]);
      return service?.connections === 0;
    });
    await test.sync([limited]);
    assertEquals(await exchange(), "a", protocol);
  }
});
