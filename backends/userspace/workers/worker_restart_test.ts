import { assert, assertEquals } from "@std/assert";
import { READY, type WorkerThread } from "../../../lib/os/worker_pool.ts";
import { ServiceTrafficTable } from "../../../lib/proxy/service_traffic.ts";
import { testServicePlan } from "../../../tests/support/builders/service_plans.ts";
import { ask, echoes, TcpServer } from "../../../tests/support/drivers/tcp_peers.ts";
import { UdpPeer } from "../../../tests/support/drivers/udp_peer.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { TestUserspaceBackend } from "../../../tests/support/stages/userspace_backend.ts";
import { WatchedWorkers } from "../../../tests/support/stages/watched_workers.ts";

const VIP = "127.96.22.1";

Deno.test("a worker that ends under load is replaced, and the others lose nothing", async () => {
  await using server = TcpServer.start(echo);
  const workers = new WatchedWorkers();
  await using test = new TestUserspaceBackend({ workers: 2, spawn: workers.spawn });
  const at = { hostname: VIP, port: unusedPort() };
  const edge = { maxConnections: 40 };
  const plan = testServicePlan({ clusterIp: VIP, port: at.port, to: [server.endpoint], edge });
  const busy = testServicePlan({
    ...{ name: "busy", clusterIp: VIP, port: unusedPort(), to: [server.endpoint] },
  });
  await test.sync([plan, busy]);
  const connect = () => Promise.all(Array.from({ length: 40 }, () => Deno.connect(at)));
  const opened = await connect();
  const served = await Promise.all(opened.map(echoes));
  assertEquals(served.filter((isServed) => isServed).length, 40);
  const [lost = 0, kept = 0] = test.connectionsOfWorkers();
  assert(lost > 0 && kept > 0, `${lost} and ${kept}`);

  await using load = startLoad({ hostname: VIP, port: busy.port });
  await eventually("it is busy", () => load.successes > 20);
  workers.end(0);
  const still = await Promise.all(opened.map(echoes));
  assertEquals(still.filter((isServed) => isServed).length, kept);
  await eventually("another worker runs", () => workers.started === 3 && test.pool?.isRunning(0));
  assertEquals(test.pool?.restarts, 1);
  assertEquals(
    (await test.backend.inspect()).summary.endsWith("; 2 workers forward, restarted 1x"),
    true,
  );
  assertEquals(
    test.logger.lines.filter(({ level }) => level === "error").map(({ fields }) => fields),
    [
      { worker: 1, reason: "ended by the test", restartInMs: 0 },
    ],
  );
  const { successes } = load;
  await eventually("it stays busy", () => load.successes > successes + 20);
  assert(load.failures <= LOADS, `${load.failures} failed, more than the ended worker had`);
  // The connections of the worker that ended no longer count for the limit.
  await test.sync([plan, busy]);
  const more = await connect();
  const admitted = await Promise.all(more.map(echoes));
  assertEquals(admitted.filter((isServed) => isServed).length, 40 - kept);
  assert(test.connectionsOfWorkers().every((count) => count > 0), "the new worker serves");
  for (const connection of [...opened, ...more]) connection.close();
});

Deno.test("connections of a removed Service do not count for a later one of its name", async () => {
  await using server = TcpServer.start(echo);
  const workers = new WatchedWorkers();
  for (const bounds of [{}, { maxServices: 0 }]) {
    const table = new ServiceTrafficTable(bounds);
    const traffic = table.of("IPv4");
    await using test = new TestUserspaceBackend({ workers: 1, spawn: workers.spawn, traffic });
    const at = { hostname: VIP, port: unusedPort() };
    const plan = testServicePlan({ clusterIp: VIP, port: at.port, to: [server.endpoint] });
    const open = async () => {
      await test.counters();
      return [...table.rows()].map(({ traffic: { open } }) => open);
    };
    await test.sync([plan]);
    using before = await Deno.connect(at);
    assertEquals(await echoes(before), true);
    assertEquals(await open(), [1]);
    await test.sync([]);
    await test.sync([plan]);
    using after = await Deno.connect(at);
    assertEquals(await echoes(after), true);
    assertEquals(await open(), [1]);
    const { started } = workers;
    workers.end(0);
    await eventually("another worker runs", () => workers.started > started);
    assertEquals(await open(), [0]);
  }
});

Deno.test("a worker that is replaced continues slow starts", async () => {
  await using old = TcpServer.named("old");
  await using fresh = TcpServer.named("fresh");
  const workers = new WatchedWorkers();
  await using test = new TestUserspaceBackend({ workers: 1, spawn: workers.spawn });
  const at = { clusterIp: VIP, port: unusedPort(), edge: { slowStartMs: 600_000 } };
  await test.sync([testServicePlan({ ...at, to: [old.endpoint] })]);
  const plan = testServicePlan({ ...at, to: [old.endpoint, fresh.endpoint].sort() });
  await test.sync([plan]);
  workers.end(0);
  await eventually("another worker runs", () => workers.started === 2 && test.pool?.isRunning(0));
  await test.sync([plan]);
  for (let turn = 0; turn < 22; turn++) await ask({ hostname: VIP, port: at.port });
  assertEquals([old.accepted, fresh.accepted], [20, 2], "a tenth of the weight");
});

Deno.test("the ServicePorts for UDP of a worker that ends are served by another one at once", async () => {
  await using endpoint = UdpPeer.open({ answer: () => "yes" });
  await using client = UdpPeer.open();
  const workers = new WatchedWorkers();
  await using test = new TestUserspaceBackend({ workers: 2, spawn: workers.spawn });
  const plans = Array.from({ length: 2 }, (_, number) =>
    testServicePlan({
      ...{ name: `dns-${number}`, clusterIp: VIP, port: unusedPort() },
      ...{ protocol: "UDP", to: [endpoint.endpoint] },
    }));
  await test.sync(plans);
  workers.end(0);
  for (const { port } of plans) {
    await eventually("it is served", async () => {
      await client.send("a", { hostname: VIP, port });
      return await client.next(200).catch(() => undefined);
    });
  }
  assertEquals((await test.sync(plans)).quarantined, []);
});

Deno.test("a worker that is silent for half a minute ends the run, and one that is heard does not", async () => {
  const clock = new FakeClock();
  let isSilent = false;
  const spawn = () => startUnanswering(() => isSilent);
  const test = new TestUserspaceBackend({ workers: 1, spawn, clock });
  await test.backend.start();
  let failure = "";
  void test.pool!.run(new AbortController().signal).catch(({ message }) => failure = message);
  // It answers nothing, as one that has much to do.
  for (let second = 0; second < 120; second++) await clock.advance(1000);
  assertEquals(failure, "");
  isSilent = true;
  for (let second = 0; second < 40; second++) await clock.advance(1000);
  assertEquals(failure, "Cannot continue: worker 1 hangs, and only a restart closes its sockets");
  test.pool![Symbol.dispose]();
});

Deno.test("a sync fails while no worker runs, and passes once one does", async () => {
  await using server = TcpServer.named("a");
  const workers = new WatchedWorkers();
  await using test = new TestUserspaceBackend({ workers: 1, spawn: workers.spawn });
  const port = unusedPort();
  const plan = testServicePlan({ clusterIp: VIP, port, to: [server.endpoint] });
  await test.sync([]);
  workers.end(0);
  const failure = await test.sync([plan]).then(() => undefined, ({ message }) => message);
  assertEquals(failure, "Cannot forward: no worker runs");
  await eventually("it runs again", () => test.pool?.isRunning(0));
  await test.sync([plan]);
  assertEquals(await ask({ hostname: VIP, port }), "a");
});

Deno.test("a stop takes less than half a minute although a worker hangs", async () => {
  const clock = new FakeClock();
  const spawn = () => startUnanswering(() => true);
  const test = new TestUserspaceBackend({ workers: 1, spawn, clock });
  await test.backend.start();
  let isStopped = false;
  const stopped = (async () => {
    await test.backend.drain(10_000);
    await test.backend[Symbol.asyncDispose]();
    isStopped = true;
  })();
  let seconds = 0;
  for (; !isStopped && seconds < 60; seconds++) await clock.advance(1000);
  await stopped;
  assert(seconds < 25, `${seconds} s`);
  test.pool![Symbol.dispose]();
});

/** A worker that answers no question; unless it is silent, it is heard. */
function startUnanswering(isSilent: () => boolean): WorkerThread {
  const thread: WorkerThread = {
    onmessage: null,
    onerror: null,
    postMessage([topic]: [string]) {
      const data = [topic, ["tell", { kind: "log", message: "working", fields: {} }]];
      if (!isSilent()) thread.onmessage?.(new MessageEvent("message", { data }));
    },
    terminate() {},
  };
  queueMicrotask(() => thread.onmessage?.(new MessageEvent("message", { data: READY })));
  return thread;
}

/** Connections at a time. */
const LOADS = 4;

/** Makes one connection after the other, several at a time. */
function startLoad(at: Deno.ConnectOptions) {
  const load = { successes: 0, failures: 0 };
  let isOver = false;
  const loops = Array.from({ length: LOADS }, async () => {
    while (!isOver) {
      const connection = await Deno.connect(at).catch(() => undefined);
      if (connection && await echoes(connection)) load.successes++;
      else load.failures++;
      connection?.close();
    }
  });
  return Object.assign(load, {
    async [Symbol.asyncDispose]() {
      isOver = true;
      await Promise.all(loops);
    },
  });
}

/** Answers with what comes. */
async function echo(connection: Deno.TcpConn): Promise<void> {
  await connection.readable.pipeTo(connection.writable);
}
