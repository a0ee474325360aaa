import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { explainPacket } from "../../lib/proxy/explain_packet.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { EdgeSettings } from "../../lib/proxy/edge_settings.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { ServiceTrafficTable } from "../../lib/proxy/service_traffic.ts";
import {
  testProxyPlan,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { ask, readToEnd, TcpServer, writeFully } from "../../tests/support/drivers/tcp_peers.ts";
import { UdpPeer } from "../../tests/support/drivers/udp_peer.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { TestUserspaceBackend } from "../../tests/support/stages/userspace_backend.ts";
import { withFolder } from "../../tests/support/with_folder.ts";

const VIP = "127.96.18.3";
/** Faster than an annotation may ask for. */
const FAST: EdgeSettings = {
  healthIntervalMs: 50,
  healthTimeoutMs: 10_000,
  healthRise: 1,
  healthFall: 1,
};
const CHECKED: EdgeSettings = { ...FAST, healthCheck: "tcp" };

function planOf(edge: EdgeSettings, to: readonly string[], more: TestServicePlan = {}) {
  return testServicePlan({ clusterIp: VIP, port: unusedPort(), to, edge, ...more });
}

function askService({ clusterIp: hostname, port }: ServicePlan): Promise<string> {
  return ask({ hostname, port });
}

/** The answers of some connections, each once, sorted. */
async function answersOf(plan: ServicePlan): Promise<readonly string[]> {
  const found = new Set<string>();
  for (let count = 0; count < 8; count++) found.add(await askService(plan));
  return [...found].sort();
}

/** A server of HTTP that also answers with its name; its status can change, and it can hang. */
class WebServer implements AsyncDisposable {
  readonly server: TcpServer;
  status: number | "hang" = 200;

  constructor(name: string, port = 0) {
    this.server = TcpServer.start(async (connection) => {
      const buffer = new Uint8Array(1024);
      const count = await connection.read(buffer) ?? 0;
      const text = new TextDecoder().decode(buffer.subarray(0, count));
      if (!text.startsWith("GET /")) return void await connection.write(encode(name));
      if (this.status === "hang") return void await readToEnd(connection);
      await writeFully(connection, encode(`HTTP/1.1 ${this.status} X\r\n\r\n`));
    }, { port });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.server[Symbol.asyncDispose]();
  }
}

function encode(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** The states of the endpoints of a plan, with reasons. */
async function statesOf(test: TestUserspaceBackend, { key }: ServicePlan) {
  const { services: [service] } = await test.backend.inspect([key]);
  return service?.health?.endpoints.map(({ endpoint, state, reason }) =>
    `${endpoint} ${state}${reason === undefined ? "" : `: ${reason}`}`
  ).sort();
}

Deno.test("UserspaceBackend skips an endpoint while it refuses, and uses it again", async () => {
  await using good = TcpServer.named("good");
  const bad = TcpServer.named("bad", { port: unusedPort() });
  await using test = new TestUserspaceBackend();
  const plan = planOf(CHECKED, [good.endpoint, bad.endpoint].sort());
  await test.sync([plan]);
  assertEquals(await answersOf(plan), ["bad", "good"]);
  await bad[Symbol.asyncDispose]();
  await eventually("it is unhealthy", () => test.healthChanges.length === 1);
  assertEquals(test.healthChanges, [`${bad.endpoint} unhealthy: connection refused`]);
  const { counters, health } = test.backend.connections;
  const { dialFailures } = await test.counters();
  assertEquals(await answersOf(plan), ["good"]);
  await test.counters();
  assertEquals(counters.dialFailures, dialFailures, "no client was sent there");
  assertEquals([health.healthy, health.unhealthy, health.ejected], [1, 1, 0]);
  assert((await statesOf(test, plan))!.includes(`${bad.endpoint} unhealthy: connection refused`));
  await using again = TcpServer.named("again", { port: bad.port });
  await eventually("it is healthy", () => test.healthChanges.length === 2);
  assertEquals(test.healthChanges[1], `${again.endpoint} healthy: -`);
  assertEquals(await answersOf(plan), ["again", "good"]);
  const lines = test.logger.lines.map(({ message }) => message);
  assert(lines.includes("Endpoint is unhealthy: new connections skip it"), lines.join());
});

Deno.test("UserspaceBackend judges HTTP by status, and keeps open connections", async () => {
  await using good = new WebServer("good");
  await using bad = new WebServer("bad");
  const { endpoint } = bad.server;
  await using test = new TestUserspaceBackend();
  const edge: EdgeSettings = { ...FAST, healthCheck: "http" };
  const plan = planOf(edge, [good.server.endpoint, endpoint].sort());
  await test.sync([plan]);
  // Of three, one of two workers has two, which go to different endpoints.
  const open = await Promise.all(
    [1, 2, 3].map(() => Deno.connect({ hostname: VIP, port: plan.port })),
  );
  await eventually("both are checked", () => test.backend.connections.health.checksPassed >= 4);
  bad.status = 503;
  await eventually("unhealthy", () => test.healthChanges.length === 1);
  assertEquals(test.healthChanges.splice(0), [`${endpoint} unhealthy: 503 instead of 200-399`]);
  assertEquals(await answersOf(plan), ["good"]);
  bad.status = 200;
  await eventually("healthy again", () => test.healthChanges.length === 1);
  assertEquals(test.healthChanges.splice(0), [`${endpoint} healthy: -`]);
  const answers = new Set<string>();
  for (const connection of open) {
    await writeFully(connection, encode("who?"));
    await connection.closeWrite();
    answers.add((await readToEnd(connection)).text);
    connection.close();
  }
  assertEquals([...answers].sort(), ["bad", "good"]);
  assert(test.backend.connections.health.checksFailed > 0);
});

Deno.test("UserspaceBackend counts an answer that does not come in time as a failed check", async () => {
  await using slow = new WebServer("slow");
  slow.status = "hang";
  await using test = new TestUserspaceBackend();
  const edge: EdgeSettings = { ...FAST, healthCheck: "http", healthTimeoutMs: 1000 };
  await test.sync([planOf(edge, [slow.server.endpoint])]);
  const { endpoint } = slow.server;
  await eventually(
    "unhealthy",
    () => test.healthChanges.includes(`${endpoint} unhealthy: no answer within 1s`),
  );
  assert(test.backend.connections.health.checksTimedOut > 0);
  slow.status = 200;
  await eventually(
    "healthy again",
    () => test.healthChanges.includes(`${endpoint} healthy: -`),
  );
});

Deno.test("UserspaceBackend ignores health while too few endpoints are healthy, and says so", async () => {
  await using good = TcpServer.named("good");
  await using test = new TestUserspaceBackend();
  const gone = [1, 2].map(() => `127.0.0.1:${unusedPort()}`);
  const plan = planOf({ ...CHECKED, healthThreshold: 50 }, [good.endpoint, ...gone].sort());
  await test.sync([plan]);
  await eventually("two are unhealthy", () => test.healthChanges.length === 2);
  const ignored = async () => (await test.backend.inspect([plan.key])).services[0]?.health?.ignored;
  assertEquals(
    await ignored(),
    "health is ignored: 1 of 3 endpoints are healthy, less than 50%",
  );
  const explained = explainPacket(testProxyPlan([plan]), {
    from: { kind: "outside", address: parseIpAddress("192.0.2.1") },
    ...{ to: plan.clusterIp, port: plan.port, protocol: "TCP" },
  }, test.backend);
  assertStringIncludes(explained.carriers[0]!.text, "health is ignored: 1 of 3");
  assertEquals(await answersOf(plan), ["good"], "other endpoints are tried instead");
  assert((await test.counters()).dialFailures > 0, "unhealthy ones are used");
  const other = { ...plan, edge: { ...plan.edge, healthThreshold: 30 } };
  await test.sync([other]);
  assertEquals(await ignored(), undefined);
  const { dialFailures } = await test.counters();
  await answersOf(other);
  assertEquals((await test.counters()).dialFailures, dialFailures);
  await good[Symbol.asyncDispose]();
  await eventually("none is healthy", () => test.healthChanges.length === 3);
  assertEquals(await ignored(), "health is ignored: 0 of 3 endpoints are healthy");
});

Deno.test("UserspaceBackend checks another port, also for UDP, whose flows move", async () => {
  await using one = UdpPeer.open({ answer: () => "one" });
  await using two = UdpPeer.open({ answer: () => "two", hostname: "127.0.0.2" });
  await using client = UdpPeer.open();
  const checkPort = unusedPort();
  const health = {
    one: TcpServer.named("", { port: checkPort }),
    two: TcpServer.named("", { hostname: "127.0.0.2", port: checkPort }),
  };
  await using test = new TestUserspaceBackend();
  const plan = planOf(
    { ...CHECKED, healthPort: checkPort },
    [one.endpoint, two.endpoint],
    { protocol: "UDP" },
  );
  await test.sync([plan]);
  await eventually("both are checked", () => test.backend.connections.health.checksPassed >= 4);
  const answer = async () => {
    await client.send("who?", { hostname: VIP, port: plan.port });
    return (await client.next()).text as keyof typeof health;
  };
  // With workers, any of them may be the first.
  const first = await answer();
  const other = first === "one" ? "two" : "one";
  assertEquals(await answer(), first);
  await health[first][Symbol.asyncDispose]();
  await eventually("the first is unhealthy", () => test.healthChanges.length === 1);
  assertEquals(await answer(), other);
  assertEquals((await test.counters()).udpMoved, 1);
  await health[other][Symbol.asyncDispose]();
});

Deno.test("UserspaceBackend does not check an endpoint of a UDP Service without a port for it", async () => {
  await using test = new TestUserspaceBackend();
  const plan = planOf(CHECKED, ["127.0.0.1:9"], { protocol: "UDP" });
  await test.sync([plan]);
  assertEquals(await statesOf(test, plan), ["127.0.0.1:9 unchecked"]);
});

Deno.test("UserspaceBackend checks Unix sockets", async () => {
  await withFolder(async (folder) => {
    const path = `${folder}/app.sock`;
    await using test = new TestUserspaceBackend({ unixSocketFolders: [folder] });
    const plan = planOf(CHECKED, ["127.0.0.1:8080"]);
    const { address, port } = plan.internal.kind === "forward"
      ? plan.internal.endpoints[0]!
      : assert(false)!;
    const edge = { ...CHECKED, unixSockets: [{ address, port, path }] };
    await test.sync([{ ...plan, edge }]);
    await eventually("it is unhealthy", () => test.healthChanges.length === 1);
    assertEquals(test.healthChanges, [
      "127.0.0.1:8080 unhealthy: the Unix socket does not exist",
    ]);
    using listener = Deno.listen({ transport: "unix", path });
    const accepted = (async () => {
      for await (const connection of listener) connection.close();
    })().catch(() => {});
    await eventually("it is healthy", () => test.healthChanges.length === 2);
    listener.close();
    await accepted;
  });
});

Deno.test("UserspaceBackend ejects an endpoint that refuses connections, and lets it return", async () => {
  await using good = TcpServer.named("good");
  const bad = TcpServer.named("bad", { port: unusedPort() });
  await bad[Symbol.asyncDispose]();
  await using test = new TestUserspaceBackend();
  const plan = planOf({ ejectAfter: 2, ejectionMs: 5_000 }, [good.endpoint, bad.endpoint].sort());
  await test.sync([plan]);
  for (let count = 0; count < 4; count++) assertEquals(await askService(plan), "good");
  await eventually("it is ejected", () => test.healthChanges.length === 1);
  assertEquals(test.healthChanges, [
    `${bad.endpoint} ejected: 2 connections in succession failed, the last one: connection refused`,
  ]);
  const { counters } = test.backend.connections;
  const { dialFailures } = await test.counters();
  assertEquals(await answersOf(plan), ["good"]);
  await eventually("it returns", () => test.healthChanges.length === 2);
  assertEquals(test.healthChanges[1], `${bad.endpoint} unchecked: -`);
  await using again = TcpServer.named("again", { port: bad.port });
  assertEquals(await answersOf(plan), ["again", "good"]);
  await test.counters();
  assertEquals(counters.dialFailures, dialFailures);
  assertEquals(test.backend.connections.health.ejections, 1);
  assert(again.accepted > 0);
});

Deno.test("UserspaceBackend forgets health with the annotations, the endpoint and the Service", async () => {
  await using good = TcpServer.named("good");
  const gone = `127.0.0.1:${unusedPort()}`;
  const table = new ServiceTrafficTable();
  await using test = new TestUserspaceBackend({ traffic: table.of("IPv4") });
  const plan = planOf(CHECKED, [good.endpoint, gone].sort());
  const figures = () => {
    const { healthy, unhealthy, ejected } = test.backend.connections.health;
    const [row] = table.rows();
    const { healthyEndpoints, unhealthyEndpoints } = row?.traffic ?? {};
    return [healthy, unhealthy, ejected, healthyEndpoints, unhealthyEndpoints];
  };
  const isUnhealthy = () =>
    eventually("it is unhealthy", () => test.backend.connections.health.unhealthy === 1);
  await test.sync([plan]);
  await isUnhealthy();
  assertEquals(figures(), [1, 1, 0, 1, 1]);
  const { edge: _, ...plain } = plan;
  await test.sync([plain]);
  assertEquals([await statesOf(test, plan), ...figures()], [undefined, 0, 0, 0, 0, 0]);
  await eventually("it is used again", async () => {
    await askService(plan);
    return (await test.counters()).dialFailures > 0;
  });
  await test.sync([plan]);
  await isUnhealthy();
  await test.sync([planOf(CHECKED, [good.endpoint], { port: plan.port })]);
  assertEquals(figures(), [1, 0, 0, 1, 0]);
  await test.sync([]);
  assertEquals(figures().slice(0, 3), [0, 0, 0]);
});
