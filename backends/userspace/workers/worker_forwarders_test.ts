import { assert, assertEquals } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../../lib/proxy/service_plan.ts";
import { ServiceTrafficTable } from "../../../lib/proxy/service_traffic.ts";
import {
  type TestServicePlan,
  testServicePlan,
} from "../../../tests/support/builders/service_plans.ts";
import { ask, isRefused, TcpServer } from "../../../tests/support/drivers/tcp_peers.ts";
import { UdpPeer } from "../../../tests/support/drivers/udp_peer.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { TestUserspaceBackend } from "../../../tests/support/stages/userspace_backend.ts";
import { WatchedWorkers } from "../../../tests/support/stages/watched_workers.ts";

const VIP = "127.96.21.1";

function planOf(options: TestServicePlan): ServicePlan {
  return testServicePlan({ clusterIp: VIP, port: unusedPort(), ...options });
}

function placeOf({ clusterIp: hostname, port }: ServicePlan) {
  return { hostname, port };
}

/** Opens a connection. Returns it if it is served, with the first bytes of the endpoint. */
async function openServed(plan: ServicePlan): Promise<[Deno.TcpConn, string] | undefined> {
  const connection = await Deno.connect(placeOf(plan));
  const buffer = new Uint8Array(64);
  await connection.write(new TextEncoder().encode("x")).catch(() => {});
  const count = await connection.read(buffer).catch(() => null);
  if (count !== null) return [connection, new TextDecoder().decode(buffer.subarray(0, count))];
  connection.close();
  return undefined;
}

async function openMany(plan: ServicePlan, count: number): Promise<[Deno.TcpConn, string][]> {
  const opened = await Promise.all(Array.from({ length: count }, () => openServed(plan)));
  return opened.filter((each) => each !== undefined);
}

function closeAll(opened: readonly (readonly [Deno.TcpConn, string])[]): void {
  for (const [connection] of opened) connection.close();
}

Deno.test("workers share the connections of one frontend, and their counts add up", async () => {
  await using server = TcpServer.named("a");
  const traffic = new ServiceTrafficTable();
  await using test = new TestUserspaceBackend({ workers: 2, traffic: traffic.of("IPv4") });
  const plan = planOf({ to: [server.endpoint] });
  await test.sync([plan]);
  const opened = await openMany(plan, 60);
  assertEquals(opened.length, 60);
  const { services: [service], summary } = await test.backend.inspect([plan.key]);
  assertEquals(service?.connections, 60);
  assertEquals(summary, "1 IPv4 addresses added to lo, one by one; 2 workers forward");
  const perWorker = test.connectionsOfWorkers();
  assert(perWorker.every((count) => count >= 10), `shares: ${perWorker}`);
  assertEquals((await test.counters()).tcpAccepted, 60);
  assertEquals([...traffic.rows()].map(({ traffic: { open, opened } }) => [open, opened]), [
    [60, 60],
  ]);
  closeAll(opened);
  await eventually("all are closed", async () => {
    const { services: [service] } = await test.backend.inspect([plan.key]);
    return service?.connections === 0;
  });
});

Deno.test("workers keep the session affinity of a client together", async () => {
  await using a = TcpServer.named("a");
  await using b = TcpServer.named("b");
  await using c = TcpServer.named("c");
  await using test = new TestUserspaceBackend({ workers: 2 });
  const to = [a, b].map(({ endpoint }) => endpoint);
  const plan = planOf({ to, affinityTimeoutSeconds: 60 });
  await test.sync([plan]);
  const opened = await openMany(plan, 60);
  assertEquals([opened.length, new Set(opened.map(([, name]) => name)).size], [60, 1]);
  assert(test.connectionsOfWorkers().every((count) => count >= 10), "both workers served some");
  closeAll(opened);
  const [[, name] = [undefined, ""]] = opened;
  const bound = name === "a" ? a : b;
  const found = await test.backend.findAffinity?.(
    plan,
    { from: { address: parseIpAddress("127.0.0.1") } } as never,
  );
  assertEquals(found?.endpoint as string, bound.endpoint);
  // A new endpoint gets none of the clients that an endpoint has which stays.
  const more = { ...plan, ...forwardTo([...to, c.endpoint], plan) };
  for (let round = 0; round < 3; round++) {
    await test.sync([round % 2 === 0 ? more : plan]);
    const opened = await openMany(plan, 20);
    assertEquals(new Set(opened.map(([, name]) => name)), new Set([name]));
    closeAll(opened);
  }
  await test.sync([{ ...plan, ...forwardTo([c.endpoint], plan) }]);
  const moved = await openMany(plan, 20);
  assertEquals(new Set(moved.map(([, name]) => name)), new Set(["c"]));
  closeAll(moved);
});

Deno.test("workers choose the endpoint with the fewest connections of all of them", async () => {
  const names = Array.from({ length: 8 }, (_, index) => `${index}`);
  const servers = names.map((name) => TcpServer.named(name));
  await using test = new TestUserspaceBackend({ workers: 2 });
  const to = servers.map(({ endpoint }) => endpoint);
  const plan = planOf({ to, edge: { balance: "least-connections" } });
  await test.sync([plan]);
  for (let round = 1; round <= 5; round++) {
    const opened = await openMany(plan, 8);
    assertEquals(opened.map(([, name]) => name).sort(), names);
    closeAll(opened);
    await eventually("they are closed", async () => {
      const { services: [service] } = await test.backend.inspect([plan.key]);
      return service?.connections === 0;
    });
  }
  for (const server of servers) await server[Symbol.asyncDispose]();
});

Deno.test("workers keep the limits of a Service exactly, over its TCP and UDP ports", async () => {
  await using server = TcpServer.named("a");
  await using endpoint = UdpPeer.open({ answer: () => "yes" });
  await using client = UdpPeer.open();
  await using test = new TestUserspaceBackend({ workers: 2 });
  const edge = { maxConnections: 7 };
  const tcp = planOf({ to: [server.endpoint], edge, portName: "tcp" });
  const udp = planOf({ to: [endpoint.endpoint], edge, portName: "udp", protocol: "UDP" });
  await test.sync([tcp, udp]);
  await client.send("a", placeOf(udp));
  await client.next();
  const opened = await openMany(tcp, 40);
  assertEquals(opened.length, 6, "and one flow");
  closeAll(opened.splice(0, 2));
  await eventually("the connections have ended", async () => {
    const { services: [service] } = await test.backend.inspect([tcp.key]);
    return service?.connections === 4;
  });
  const more = await openMany(tcp, 20);
  assertEquals([more.length, (await test.counters()).tcpLimited], [2, 34 + 18]);
  const { tcpAccepted, tcpRefused } = await test.counters();
  assertEquals([tcpAccepted, tcpRefused], [6 + 2, 34 + 18], "as in one thread");
  await using other = UdpPeer.open();
  await other.send("b", placeOf(udp));
  await eventually("the flow is refused", async () => (await test.counters()).udpLimited === 1);
  closeAll([...opened, ...more]);
});

Deno.test("workers keep a limit on the rate of new connections together", async () => {
  await using server = TcpServer.named("a");
  await using test = new TestUserspaceBackend({ workers: 2 });
  const plan = planOf({ to: [server.endpoint], edge: { maxPerSecond: 5 } });
  await test.sync([plan]);
  const start = performance.now();
  const opened = await openMany(plan, 40);
  const most = 5 + 5 * (performance.now() - start) / 1000;
  assert(opened.length >= 5 && opened.length <= most, `${opened.length} of at most ${most}`);
  closeAll(opened);
});

/** An endpoint and a client in a thread of their own; the client sets the flag to what it has got. */
const PEERS = `
  const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  (async () => {
    for await (const connection of listener) connection.readable.pipeTo(connection.writable);
  })();
  onmessage = async ({ data: { at, flag } }) => {
    const connection = await Deno.connect(at);
    await connection.write(new Uint8Array([7]));
    const buffer = new Uint8Array(9);
    await connection.read(buffer);
    Atomics.store(flag, 0, buffer[0]);
    Atomics.notify(flag, 0);
  };
  postMessage(listener.addr.port);`;

Deno.test("workers forward while the main thread stands still, also with limits, affinity and loads", async () => {
  await using test = new TestUserspaceBackend({ workers: 2 });
  const url = `data:application/javascript,${encodeURIComponent(PEERS)}`;
  const peers = new Worker(url, { type: "module" });
  const port = await new Promise<number>((resolve) => {
    peers.onmessage = ({ data }) => resolve(data);
  });
  const edge = { maxConnections: 9, maxPerClient: 9, maxPerSecond: 9 };
  for (const balance of ["least-connections", "random-two-choices"] as const) {
    const plan = planOf({
      ...{ to: [`127.0.0.1:${port}`], affinityTimeoutSeconds: 60 },
      edge: { ...edge, balance },
    });
    await test.sync([plan]);
    const flag = new Int32Array(new SharedArrayBuffer(4));
    peers.postMessage({ at: placeOf(plan), flag });
    Atomics.wait(flag, 0, 0, 20_000);
    assertEquals(flag[0], 7, "answered while this thread was blocked");
  }
  peers.terminate();
});

Deno.test("workers have the ServicePorts for UDP evenly, each in one of them", async () => {
  await using endpoint = UdpPeer.open({ answer: (text) => `${text}` });
  await using client = UdpPeer.open();
  const workers = new WatchedWorkers();
  await using test = new TestUserspaceBackend({ workers: 2, spawn: workers.spawn });
  const plans = Array.from(
    { length: 6 },
    (_, number) => planOf({ name: `dns-${number}`, protocol: "UDP", to: [endpoint.endpoint] }),
  );
  await test.sync(plans);
  assertEquals([0, 1].map((index) => workers.commanded(index, "open")), [3, 3]);
  for (const plan of plans) {
    await client.send(plan.name.name, placeOf(plan));
    assertEquals((await client.next()).text, plan.name.name);
  }
});

/** Opens flows to an address, each from a client of its own, one after the other. */
async function openFlows(hostname: string, { port }: ServicePlan, count: number): Promise<void> {
  for (let flow = 0; flow < count; flow++) {
    await using client = UdpPeer.open();
    await client.send("a", { hostname, port });
    await client.next();
  }
}

Deno.test("workers keep the bound of flows over all addresses of a ServicePort", async () => {
  await using endpoint = UdpPeer.open({ answer: () => "yes" });
  await using test = new TestUserspaceBackend({ workers: 2, maxFlowsPerService: 4 });
  const externalIps = [2, 3, 4].map((last) => `127.96.21.${last}`);
  const plan = planOf({ externalIps, protocol: "UDP", to: [endpoint.endpoint] });
  await test.sync([plan]);
  for (const address of [VIP, ...externalIps]) await openFlows(address, plan, 3);
  const { services: [service] } = await test.backend.inspect([plan.key]);
  assertEquals(service?.connections, 4);
});

Deno.test("workers keep the bound of flows when an address goes to another ServicePort", async () => {
  await using endpoint = UdpPeer.open({ answer: () => "yes" });
  await using test = new TestUserspaceBackend({ workers: 2, maxFlowsPerService: 4 });
  const [moved, other] = ["127.96.21.2", "127.96.21.3"];
  const port = unusedPort();
  const dns = { port, protocol: "UDP", to: [endpoint.endpoint] } as const;
  const of = (name: string, clusterIp: string, ...externalIps: string[]) =>
    planOf({ ...dns, name, clusterIp, externalIps });
  await test.sync([of("a", VIP, moved), of("b", other)]);
  const plan = of("b", other, moved);
  await test.sync([of("a", VIP), plan]);
  await using client = UdpPeer.open();
  await eventually("it is served by the other worker", async () => {
    await client.send("a", { hostname: moved, port });
    await client.next(200).catch(() => undefined);
    return (await test.backend.inspect([plan.key])).services[0]?.connections === 1;
  });
  for (const address of [moved, other]) await openFlows(address, plan, 6);
  const { services: [service] } = await test.backend.inspect([plan.key]);
  assertEquals(service?.connections, 4);
  // One that takes the place of another ServicePort has its sockets at once.
  const next = of("c", other, moved);
  await test.sync([of("a", VIP), next]);
  for (const address of [moved, other]) await openFlows(address, next, 6);
  assertEquals((await test.backend.inspect([next.key])).services[0]?.connections, 4);
});

Deno.test("a sync is confirmed when each worker serves by it", async () => {
  await using a = TcpServer.named("a");
  await using b = TcpServer.named("b");
  await using test = new TestUserspaceBackend({ workers: 2 });
  const plan = planOf({ to: [a.endpoint] });
  for (let round = 0; round < 3; round++) {
    await test.sync([plan]);
    assertEquals(
      (await openMany(plan, 30)).map(([connection, name]) => {
        connection.close();
        return name;
      }),
      Array(30).fill("a"),
    );
    await test.sync([{ ...plan, ...forwardTo([b.endpoint], plan) }]);
    assertEquals(
      (await openMany(plan, 30)).map(([connection, name]) => {
        connection.close();
        return name;
      }),
      Array(30).fill("b"),
    );
    await test.sync([]);
    assertEquals(await isRefused(placeOf(plan)), true);
  }
});

function forwardTo(to: readonly string[], plan: ServicePlan): Partial<ServicePlan> {
  const { internal, external, externalFromCluster } = testServicePlan({ to: to.toSorted() });
  return { ...plan, internal, external, externalFromCluster };
}

Deno.test("the main program serves as a worker, as in an executable of deno compile", async () => {
  await using server = TcpServer.named("a");
  const program = new URL("../../../main.ts", import.meta.url);
  const spawn = (name: string) => new Worker(program, { type: "module", name });
  await using test = new TestUserspaceBackend({ workers: 2, spawn });
  const plan = planOf({ to: [server.endpoint] });
  await test.sync([plan]);
  assertEquals(await ask(placeOf(plan)), "a");
});

Deno.test("a frontend whose port is in use is quarantined once, and served when it is free", async () => {
  await using server = TcpServer.named("a");
  await using test = new TestUserspaceBackend({ workers: 3 });
  const plan = planOf({ to: [server.endpoint] });
  // The socket of another program that would share it.
  const other = Deno.listen({ ...placeOf(plan), reusePort: true });
  const { quarantined } = await test.sync([plan]);
  assertEquals(quarantined.map(({ address }) => address), [`${VIP}:${plan.port}/TCP`]);
  other.close();
  assertEquals((await test.sync([plan])).quarantined, []);
  assertEquals(await ask(placeOf(plan)), "a");
});

Deno.test("a drain waits for the connections of all workers", async () => {
  await using server = TcpServer.named("a");
  await using test = new TestUserspaceBackend({ workers: 2 });
  const plan = planOf({ to: [server.endpoint] });
  await test.sync([plan]);
  const opened = await openMany(plan, 30);
  let isDrained = false;
  const drained = test.backend.drain(30_000).then(() => isDrained = true);
  await eventually("no new connection is taken", () => isRefused(placeOf(plan)));
  closeAll(opened.splice(1));
  await eventually("the others have ended", async () => {
    const { services: [service] } = await test.backend.inspect([plan.key]);
    return service?.connections === 1;
  });
  assertEquals(isDrained, false);
  closeAll(opened);
  await drained;
});

Deno.test("workers serve two Services with one stand-in at different ports, as one thread does", async () => {
  await using a = TcpServer.named("a");
  await using b = TcpServer.named("b");
  const port = unusedPort();
  const plans = [a, b].map((server, index) =>
    planOf({
      ...{ name: server === a ? "a" : "b", clusterIp: `fd00:21::${10 + index}` },
      ...{ port, to: [server.endpoint] },
    })
  );
  for (const workers of [0, 2]) {
    // Of IPv6, all have ::1.
    const options = { workers, family: "IPv6", addressMode: "none" } as const;
    await using test = new TestUserspaceBackend(options);
    await test.sync(plans);
    const { services } = await test.backend.inspect();
    const places = services.map(({ addresses: [at] }) => at!);
    assertEquals(
      places.map(({ role, state }) => `${role} ${state}`),
      Array(2).fill("StandIn serving"),
    );
    assertEquals(new Set(places.map(({ port }) => port)).size, 2);
    for (let round = 0; round < 8; round++) {
      const answers = places.map(({ address: hostname, port }) => ask({ hostname, port }));
      assertEquals(await Promise.all(answers), ["a", "b"]);
    }
  }
});
