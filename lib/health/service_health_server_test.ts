import { assert, assertEquals } from "@std/assert";
import { eventually } from "../../tests/support/eventually.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { listenHttp } from "../../tests/support/drivers/listen_http.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { testNeeding } from "../../tests/support/requirement.ts";
import {
  testEndpoint,
  testPlanChanges,
  testProxyPlan,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { type IpFamily, parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import { systemClock } from "../os/clock.ts";
import { type AddressHandover, HANDOVER_RETRY_MS } from "../os/http_server.ts";
import { systemNetwork } from "../os/network.ts";
import { probeWildcard } from "../os/wildcard.ts";
import type { ProxyPlan } from "../proxy/proxy_plan.ts";
import { type ListenForService, ServiceHealthServer } from "./service_health_server.ts";

const listen: ListenForService = (_, address, handler) => listenHttp(address, handler);

interface Stage extends AsyncDisposable {
  readonly logger: MemoryLogger;
  readonly failures: string[];
  readonly server: ServiceHealthServer;
  /** Whether the proxy keeps up. */
  healthy: boolean;
  /** Tells of a plan and waits for the sockets. */
  sync(
    services: readonly TestServicePlan[],
    options?: { readonly family?: IpFamily; readonly addresses?: readonly string[] },
  ): Promise<void>;
}

function createStage(
  options: {
    readonly everywhere?: boolean;
    readonly clock?: FakeClock;
    readonly handover?: AddressHandover;
  } = {},
): Stage {
  const { everywhere = false, clock = new FakeClock(), handover = { pending: false } } = options;
  const logger = new MemoryLogger();
  const failures: string[] = [];
  const previous = new Map<IpFamily, ProxyPlan>();
  const server = new ServiceHealthServer(
    { clock, logger, listen, random: () => 0 },
    {
      handover,
      everywhere: () => everywhere,
      wildcard: () => probeWildcard(systemNetwork),
      proxyHealthy: () => stage.healthy,
      onListenFailure: ({ service, port }) => failures.push(`${service.name} ${port}`),
    },
  );
  const stage: Stage = {
    logger,
    failures,
    server,
    healthy: true,
    async sync(services, { family = "IPv4", addresses = ["127.0.0.1"] } = {}) {
      const shared = { nodePortAddresses: addresses.map(parseIpAddress) };
      const plan = testProxyPlan(services.map(testServicePlan), { family, shared });
      server.synced(family, plan, testPlanChanges(plan, previous.get(family)));
      previous.set(family, plan);
      await server.settled();
    },
    [Symbol.asyncDispose]: () => server.stop(),
  };
  return stage;
}

function local(...texts: readonly string[]) {
  return texts.map((text) => testEndpoint(text, { isLocal: true }));
}

/** A Service with this many endpoints on the node. */
function service(port: number, endpoints: readonly string[] = []): TestServicePlan {
  return { healthCheckNodePort: parsePort(port), endpoints: local(...endpoints) };
}

async function ask(port: number, host = "127.0.0.1", init?: RequestInit) {
  const response = await fetch(`http://${host}:${port}/any/path`, init);
  const body = await response.text();
  return { status: response.status, body: body && JSON.parse(body) };
}

async function refused(port: number, host = "127.0.0.1"): Promise<boolean> {
  try {
    (await Deno.connect({ hostname: host, port })).close();
    return false;
  } catch (error) {
    return error instanceof Deno.errors.ConnectionRefused;
  }
}

Deno.test("ServiceHealthServer answers on every path and method with code, count and weight", async () => {
  await using stage = createStage();
  const port = unusedPort();
  await stage.sync([service(port, ["10.0.0.1:80", "10.0.0.2:80"])]);
  const response = await fetch(`http://127.0.0.1:${port}/x?y`, { method: "POST", body: "z" });
  assertEquals(response.status, 200);
  assertEquals(response.headers.get("content-type"), "application/json");
  assertEquals(response.headers.get("x-content-type-options"), "nosniff");
  assertEquals(response.headers.get("x-load-balancing-endpoint-weight"), "2");
  assertEquals(
    await response.text(),
    '{\n\t"service": {\n\t\t"namespace": "ns",\n\t\t"name": "web"\n\t},\n' +
      '\t"localEndpoints": 2,\n\t"serviceProxyHealthy": true\n}',
  );
});

Deno.test("ServiceHealthServer counts the distinct addresses of ready endpoints here, over all ports", async () => {
  await using stage = createStage();
  const port = unusedPort();
  const others = [
    testEndpoint("10.0.0.4:80"),
    testEndpoint("10.0.0.5:80", { isLocal: true, ready: false }),
    testEndpoint("10.0.0.6:80", { isLocal: true, ready: false, terminating: true }),
  ];
  const http = service(port, ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.2:81"]);
  const https = { ...service(port, ["10.0.0.2:443", "10.0.0.3:443"]), portName: "https" };
  await stage.sync([{ ...http, endpoints: [...http.endpoints ?? [], ...others] }, https]);
  assertEquals((await ask(port)).body.localEndpoints, 3);
  await stage.sync([http]);
  assertEquals((await ask(port)).body.localEndpoints, 2);
  await stage.sync([{ ...http, endpoints: others }]);
  assertEquals((await ask(port)).status, 503);
  await stage.sync([{ endpoints: http.endpoints ?? [] }]);
  assert(await refused(port));
});

Deno.test("ServiceHealthServer answers 503 for a new Service without endpoints, and while the proxy is behind", async () => {
  await using stage = createStage();
  const port = unusedPort();
  await stage.sync([service(port)]);
  assertEquals((await ask(port)).status, 503);
  await stage.sync([service(port, ["10.0.0.1:80"])]);
  assertEquals((await ask(port)).status, 200);
  stage.healthy = false;
  const behind = await ask(port);
  assertEquals([behind.status, behind.body.serviceProxyHealthy], [503, false]);
});

Deno.test("ServiceHealthServer closes the port of a Service that is gone, and moves with a changed one", async () => {
  await using stage = createStage();
  const [first, second] = [unusedPort(), unusedPort()];
  await stage.sync([service(first)]);
  await stage.sync([service(second)]);
  assertEquals([await refused(first), await refused(second)], [true, false]);
  await stage.sync([]);
  assert(await refused(second));
});

Deno.test("ServiceHealthServer hands a port from one Service to another in one sync", async () => {
  await using stage = createStage();
  const port = unusedPort();
  // The name sorts first: what takes the port must still come after what leaves it.
  await stage.sync([service(port, ["10.0.0.1:80"])]);
  await stage.sync([{ ...service(port, ["10.0.0.2:80"]), name: "a" }]);
  assertEquals((await ask(port)).body.service.name, "a");
  assertEquals(stage.failures, []);
});

const test = testNeeding("Dual stack", [["IPv6", probeWildcard(systemNetwork) !== "none"]]);
test("ServiceHealthServer serves both families of a Service from one port (kubernetes/kubernetes#114702)", async () => {
  await using stage = createStage({ everywhere: true });
  const port = unusedPort();
  await stage.sync([service(port, ["10.0.0.1:80"])], { addresses: [] });
  const six = service(port, ["[2001:db8::1]:80", "[2001:db8::2]:80"]);
  await stage.sync([six], { family: "IPv6", addresses: [] });
  assertEquals((await ask(port)).body.localEndpoints, 1);
  assertEquals((await ask(port, "[::1]")).body.localEndpoints, 2);
  assertEquals(stage.failures, []);
  await stage.sync([], { family: "IPv6", addresses: [] });
  assertEquals((await ask(port)).status, 200);
});

Deno.test("ServiceHealthServer keeps its other addresses when one has left the machine", async () => {
  await using stage = createStage();
  const port = unusedPort();
  const services = [service(port, ["10.0.0.1:80"])];
  // 192.0.2.0/24 is for documentation: no machine has it.
  await stage.sync(services, { addresses: ["127.0.0.1", "192.0.2.1"] });
  assertEquals((await ask(port)).status, 200);
  assertEquals(stage.failures, [`web ${port}`]);
});

Deno.test("ServiceHealthServer reports a port in use, keeps the others, and tries again at the next sync", async () => {
  await using stage = createStage();
  const [port, other] = [unusedPort(), unusedPort()];
  const services = [{ ...service(port), name: "web" }, { ...service(other), name: "other" }];
  {
    using _ = Deno.listen({ hostname: "127.0.0.2", port });
    await stage.sync(services, { addresses: ["127.0.0.1", "127.0.0.2"] });
    assertEquals(stage.failures, [`web ${port}`]);
    assert(await refused(port), "every listener of the Service is closed");
    assertEquals((await ask(other)).status, 503);
  }
  await stage.sync(services, { addresses: ["127.0.0.1", "127.0.0.2"] });
  assertEquals((await ask(port)).status, 503);
});

Deno.test("ServiceHealthServer tries again by itself, more and more slowly, and reports it once", async () => {
  const clock = new FakeClock();
  await using stage = createStage({ clock });
  const port = unusedPort();
  {
    using _ = Deno.listen({ hostname: "127.0.0.1", port });
    await stage.sync([service(port)]);
    await clock.advance(1000);
    await stage.server.settled();
    await clock.advance(1000);
    assertEquals(stage.failures.length, 2, "the third try is 2 s after the second");
    await clock.advance(1000);
    await stage.server.settled();
    assertEquals(stage.failures.length, 3);
  }
  await clock.advance(4000);
  await stage.server.settled();
  assertEquals((await ask(port)).status, 503);
  assertEquals(stage.logger.lines.map(({ level }) => level), ["error", "info"]);
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("ServiceHealthServer opens all ports one try after a handover, and calls the wait no failure", async () => {
  const [clock, handover] = [new FakeClock(), { pending: true }];
  await using stage = createStage({ clock, handover });
  const foreign = unusedPort();
  const ports = Array.from({ length: 40 }, unusedPort);
  const listen = (port: number) => Deno.listen({ hostname: "127.0.0.1", port });
  {
    using _ = listen(foreign);
    const taken = ports.map(listen);
    const services = [foreign, ...ports].map((port, index) => ({
      ...service(port),
      name: `web-${index}`,
    }));
    await stage.sync(services);
    await clock.advance(20 * HANDOVER_RETRY_MS);
    await stage.server.settled();
    for (const each of taken) each.close();
    await clock.advance(HANDOVER_RETRY_MS);
    await stage.server.settled();
    for (const port of ports) assertEquals((await ask(port)).status, 503);
    assertEquals(stage.failures, []);
    const levels = Object.groupBy(stage.logger.lines, ({ level }) => level);
    assertEquals([levels.info?.length, levels.error?.length], [41 + 40, undefined]);
    handover.pending = false;
    await clock.advance(10_000);
    await stage.server.settled();
    assert(stage.failures.length > 0, "another program has it");
  }
});

Deno.test("ServiceHealthServer opens a thousand ports without holding up the event loop", async () => {
  const server = new ServiceHealthServer(
    { clock: systemClock, logger: new MemoryLogger(), listen, random: () => 0 },
    {
      everywhere: () => false,
      wildcard: () => "none",
      proxyHealthy: () => true,
      onListenFailure: ({ port }) => failures.push(port),
    },
  );
  const failures: number[] = [];
  const services = Array.from({ length: 1000 }, (_, index) => ({
    ...service(20_000 + index, ["10.0.0.1:80"]),
    name: `web-${index}`,
  }));
  // An address of its own: other tests have ports of this range on 127.0.0.1.
  const shared = { nodePortAddresses: [parseIpAddress("127.11.12.13")] };
  const plan = testProxyPlan(services.map(testServicePlan), { shared });
  server.synced("IPv4", plan, testPlanChanges(plan));
  const working = server.settled();
  let turns = 0;
  const done = working.then(() => "done");
  while (await Promise.race([done, systemClock.yieldToEventLoop().then(() => "turn")]) === "turn") {
    turns++;
  }
  assert(turns >= 10, `${turns} turns of the event loop`);
  assertEquals(failures, []);
  const answer = await eventually("an answer", () => ask(20_999, "127.11.12.13"));
  assertEquals(answer.body.service.name, "web-999");
  await server.stop();
});
