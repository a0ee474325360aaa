import { assert, assertEquals } from "@std/assert";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemNetwork, type TcpConnection } from "../../../lib/os/network.ts";
import type { ServiceKey, ServicePortKey } from "../../../lib/proxy/service_port_name.ts";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import {
  FakeConnection,
  FakeListener,
  FakeNetwork,
  systemError,
} from "../../../tests/support/fakes/fake_network.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { testServicePlan, testSharedPlan } from "../../../tests/support/builders/service_plans.ts";
import { Forwarding } from "../forwarding.ts";
import { serviceAddresses } from "../listeners.ts";
import { TcpAcceptor } from "./tcp_acceptor.ts";

const AT = serviceAddresses(testServicePlan(), testSharedPlan())[0]!;

/** Takes connections and does nothing with them. */
class Taker {
  readonly key = testServicePlan().key;
  readonly taken: TcpConnection[] = [];

  accept(connection: TcpConnection): void {
    this.taken.push(connection);
  }

  trusts(): boolean {
    return false;
  }
}

function setUp() {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const network = new FakeNetwork();
  const forwarding = new Forwarding({ clock, logger, network }, { udpTimeoutMs: 1000 });
  const listener = new FakeListener({ hostname: "127.96.0.1", port: 80 });
  const taker = new Taker();
  network.listenTcp = () => listener;
  const acceptor = new TcpAcceptor(
    forwarding,
    forwarding.engine.listenTcp(listener.addr),
    taker,
    AT,
  );
  acceptor.start();
  return { clock, logger, forwarding, listener, taker, acceptor };
}

Deno.test("TcpAcceptor.close() ends a connection that waits for its turn, like those in the queue", async () => {
  const { clock, forwarding, listener, taker, acceptor } = setUp();
  clock.yieldToEventLoop = () => clock.sleep(1);
  const connections = Array.from({ length: 40 }, () => new FakeConnection());
  listener.offer(...connections);
  await settle();
  const { length: taken } = taker.taken;
  assert(taken < 40, `${taken}`);
  acceptor.close();
  await clock.advance(10);
  assertEquals(taker.taken.length, taken);
  assertEquals(connections[taken]!.closed, true);
  await forwarding.loops.zero();
});

Deno.test("TcpAcceptor skips clients that disconnected before they were accepted, without a pause", async () => {
  const { logger, forwarding, listener, taker, acceptor } = setUp();
  listener.offer(...Array(20).fill(systemError("ENOTCONN")), new FakeConnection());
  for (let turn = 0; turn < 10 && taker.taken.length === 0; turn++) await settle();
  assertEquals(taker.taken.length, 1);
  assertEquals(logger.lines, []);
  acceptor.close();
  await forwarding.loops.zero();
});

Deno.test("TcpAcceptor pauses when no sockets are left, and continues when there are", async () => {
  const { clock, logger, forwarding, listener, taker, acceptor } = setUp();
  listener.offer(...Array(20).fill(systemError("EMFILE")), new FakeConnection());
  await clock.advance(1000);
  // 5 + 10 + 20 + 40 + 80 + 160 ms, then 250 ms each: no busy loop.
  assertEquals(listener.asked, 9);
  assertEquals(logger.lines.map(({ message, fields }) => [message, fields.error]), [
    ["Cannot accept a connection", "EMFILE"],
  ]);
  await clock.advance(5000);
  assertEquals(taker.taken.length, 1);
  acceptor.close();
  await forwarding.loops.zero();
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("TcpAcceptor asks for silent connections to be closed when no sockets are left", async () => {
  const { forwarding, listener, acceptor } = setUp();
  const asked: number[] = [];
  forwarding.room.enter({
    ...{ key: "ns/web/TCP" as ServicePortKey, service: "ns/web" as ServiceKey },
    ...{ use: "connection", size: 0, hasSilent: () => true, silentSince: () => [] },
    closeSilent: (count) => (asked.push(count), count),
    close() {},
  });
  listener.offer(systemError("EMFILE"), systemError("ECONNABORTED"));
  await settle();
  assertEquals(asked, [16]);
  acceptor.close();
  await forwarding.loops.zero();
});

Deno.test("TcpAcceptor.close() ends a pause", async () => {
  const { clock, forwarding, listener, acceptor } = setUp();
  listener.offer(systemError("EMFILE"));
  await settle();
  acceptor.close();
  await forwarding.loops.zero();
  assertEquals([listener.closed, clock.pendingTimers], [true, 0] as never);
});

Deno.test("TcpAcceptor takes a burst in parts, and in turns with other sockets", async () => {
  const [clock, network] = [systemClock, systemNetwork];
  const logger = new MemoryLogger();
  const forwarding = new Forwarding({ clock, logger, network }, { udpTimeoutMs: 1000 });
  using clients = new globalThis.DisposableStack();
  // All are in the kernel's queues before the first is taken.
  const sockets = await Promise.all([400, 40].map(async (count) => {
    const listener = forwarding.engine.listenTcp({ hostname: "127.0.0.1", port: 0 });
    for (let made = 0; made < count; made++) clients.use(await Deno.connect(listener.addr));
    const forwarder = new Taker();
    const acceptor = new TcpAcceptor(forwarding, listener, forwarder, AT);
    return { acceptor, count, taken: forwarder.taken };
  }));
  const [burst, other] = sockets.map(({ taken }) => taken);
  const steps: number[] = [];
  let besides = 0;
  for (const { acceptor } of sockets) acceptor.start();
  await eventually("all are taken", async () => {
    const before = burst!.length + other!.length;
    await clock.yieldToEventLoop();
    steps.push(burst!.length + other!.length - before);
    if (other!.length < 40) besides = burst!.length;
    return burst!.length === 400 && other!.length === 40;
  });
  for (const { acceptor, taken } of sockets) {
    acceptor.close();
    for (const connection of taken) connection.close();
  }
  await forwarding.loops.zero();
  // Two turns may end within one of this test.
  assert(Math.max(...steps) <= 32, `taken in each turn: ${steps}`);
  assert(besides <= 80, `${besides} of the burst were taken before the others`);
});
