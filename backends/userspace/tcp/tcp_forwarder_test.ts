import { assertEquals, assertMatch } from "@std/assert";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeConnection, FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import {
  type TestServicePlan,
  testServicePlan,
  testSharedPlan,
} from "../../../tests/support/builders/service_plans.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { SocketAddress } from "../../../lib/os/network.ts";
import { OpenFiles } from "../../../lib/os/open_files.ts";
import { Forwarding } from "../forwarding.ts";
import { serviceAddresses } from "../listeners.ts";
import { OwnSockets, SHARED_SOCKETS_BYTES } from "../own_sockets.ts";
import { TcpForwarder } from "./tcp_forwarder.ts";

const [A, B] = ["10.0.0.1:80", "10.0.0.2:80"] as const;

const [ADDRESS] = serviceAddresses(testServicePlan(), testSharedPlan());

function setUp(
  options: TestServicePlan = { to: [A] },
  { bound = 16_384, openFiles, own = new OwnSockets() }: {
    readonly bound?: number;
    readonly openFiles?: OpenFiles;
    readonly own?: OwnSockets;
  } = {},
) {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  const network = new FakeNetwork();
  const forwarding = new Forwarding(
    { clock, logger, network, own, ...(openFiles && { openFiles }) },
    { udpTimeoutMs: 1000, maxConnectionsPerService: bound },
  );
  const plan = testServicePlan(options);
  const forwarder = new TcpForwarder(forwarding, plan);
  const addresses = serviceAddresses(plan, testSharedPlan());
  const accept = async (index = 0, client?: SocketAddress) => {
    const connection = new FakeConnection(client);
    forwarder.accept(connection, addresses[index]!);
    await settle();
    return connection;
  };
  const messages = () => logger.lines.map(({ message }) => message);
  return { clock, forwarding, forwarder, logger, network, accept, messages };
}

Deno.test("TcpForwarder.accept() never waits for the endpoint of another client", async () => {
  const { forwarding, network, accept } = setUp({ to: [A, B] });
  network.answers.set(A, "hang");
  for (let count = 0; count < 4; count++) await accept();
  assertEquals(network.dials, [A, B, A, B]);
  assertEquals(network.connections.length, 2);
  forwarding.close();
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder.accept() reports it when no socket is left for the endpoint", async () => {
  const { forwarding, network, accept, messages } = setUp();
  network.answers.set(A, "out-of-sockets");
  const client = await accept();
  assertEquals(client.closed, true);
  assertEquals(messages(), ["Cannot open a socket to an endpoint"]);
  forwarding.close();
});

Deno.test("TcpForwarder.accept() refuses at the limit while no connection is silent for long", async () => {
  const { clock, forwarding, forwarder, accept, messages } = setUp({ to: [A] }, { bound: 2 });
  const [first] = [await accept(), await accept()];
  await clock.advance(299_000);
  const third = await accept();
  assertEquals([first.closed, third.closed, forwarder.connections], [false, true, 2]);
  assertEquals(messages(), ["Refused a connection: the limit of the Service is reached"]);
  forwarding.close();
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder.accept() closes the longest silent connection at the bound", async () => {
  const { clock, forwarding, forwarder, accept, messages } = setUp({ to: [A] }, { bound: 2 });
  const first = await accept();
  const second = await accept();
  await clock.advance(200_000);
  first.receive();
  await clock.advance(100_000);
  const third = await accept();
  assertEquals([first.closed, second.closed, third.closed], [false, true, false]);
  assertEquals(messages(), ["Closed an idle connection for a new one"]);
  assertEquals(forwarding.counters.tcpSilentClosed, 1);
  assertEquals(forwarder.connections, 2);
  forwarding.close();
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder.accept() names the remedy when the kernel has no port for a connection", async () => {
  const { forwarding, logger, network, accept } = setUp({ to: [A, B] });
  for (const endpoint of [A, B]) network.answers.set(endpoint, "out-of-ports");
  assertEquals((await accept()).closed, true);
  assertEquals(network.dials, [A, B]);
  const [line] = logger.lines;
  assertEquals(line?.message, "Cannot open a socket to an endpoint");
  assertMatch(String(line?.fields.cure), /net\.ipv4\.ip_local_port_range/);
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder.accept() takes files from the Service that hoards them, once they are silent", async () => {
  const openFiles = new OpenFiles(100);
  const greedy = setUp({ to: [A] }, { openFiles });
  const hoard: FakeConnection[] = [];
  while (hoard.at(-1)?.closed !== true) hoard.push(await greedy.accept());
  const most = greedy.forwarder.connections;
  assertEquals(greedy.messages(), ["Refused a connection: too few open files remain"]);
  // Another Service gets the remaining files, and then one in exchange for one.
  const { forwarding } = greedy;
  const modest = new TcpForwarder(forwarding, testServicePlan({ name: "modest", to: [B] }));
  const ask = async () => {
    const connection = new FakeConnection();
    modest.accept(connection, ADDRESS!);
    await settle();
    return !connection.closed;
  };
  while (await ask());
  const own = modest.connections;
  assertEquals(own > 0 && own < most / 2, true, `${own} of ${most}`);
  await greedy.clock.advance(10_000);
  hoard[1]!.receive();
  await settle();
  assertEquals([await ask(), await ask()], [true, true]);
  assertEquals(hoard.slice(0, 4).map(({ closed }) => closed), [true, false, true, false]);
  assertEquals([greedy.forwarder.connections, modest.connections], [most - 2, own + 2]);
  assertEquals((openFiles.refused.get("connection") ?? 0) > 0, true);
  forwarding.close();
  await forwarding.loops.zero();
  assertEquals(openFiles.open, { listeners: 0, traffic: 0 });
});

Deno.test("TcpForwarder.accept() bounds what clients of silent endpoints hold, and leaves files for other Services", async () => {
  const openFiles = new OpenFiles(100);
  const holes = setUp({ to: [A] }, { openFiles });
  const { clock, forwarding, forwarder, network } = holes;
  network.answers.set(A, "hang");
  const clients: FakeConnection[] = [];
  while (clients.at(-1)?.closed !== true) clients.push(await holes.accept());
  assertEquals(forwarder.connections, clients.length - 1);
  const other = new TcpForwarder(forwarding, testServicePlan({ name: "other", to: [B] }));
  const served = new FakeConnection();
  other.accept(served, ADDRESS!);
  await settle();
  assertEquals([served.closed, other.connections, network.dials.at(-1)], [false, 1, B]);
  // Each attempt has a time-out; none is repeated without end.
  await clock.advance(10_000);
  assertEquals(clients.every(({ closed }) => closed), true);
  assertEquals([forwarder.connections, other.connections], [0, 1]);
  assertEquals(
    network.dials.length - 1 <= 4 * clients.length,
    true,
    `${network.dials.length} dials`,
  );
  forwarding.close();
  await forwarding.loops.zero();
  assertEquals([openFiles.open, clock.pendingTimers], [{ listeners: 0, traffic: 0 }, 0] as never);
});

/** A client that sends no PROXY protocol header, and the range of those that have to. */
const UNTRUSTED = { hostname: "198.51.100.7", port: 5000 };
const TRUSTED = [parseCidr("192.0.2.0/24")];

Deno.test("TcpForwarder closes the connection that has waited longest for a header when very many do", async () => {
  const { forwarding, accept, messages } = setUp({ to: [A], edge: { acceptProxyFrom: TRUSTED } });
  const waiting = [];
  for (let count = 0; count < 1026; count++) waiting.push(await accept());
  assertEquals(waiting.map(({ closed }) => closed).lastIndexOf(true), 1);
  assertEquals([forwarding.counters.proxyHeaderErrors, forwarding.sessions.value], [2, 1024]);
  assertEquals(messages(), ["Closed a connection without a valid PROXY protocol header"]);
  forwarding.close();
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder closes a connection whose header is late for a new one at the bound", async () => {
  const { clock, forwarding, accept } = setUp(
    { to: [A], edge: { acceptProxyFrom: TRUSTED } },
    { bound: 2 },
  );
  const [first, second] = [await accept(), await accept()];
  await clock.advance(249);
  assertEquals((await accept(0, UNTRUSTED)).closed, true, "a header may take a moment");
  await clock.advance(1);
  assertEquals((await accept(0, UNTRUSTED)).closed, false);
  assertEquals([first.closed, second.closed], [true, false]);
  assertEquals(forwarding.counters.tcpSilentClosed, 0);
  forwarding.close();
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder looks once an hour whether silent clients are gone", async () => {
  const { clock, forwarding, forwarder, accept } = setUp();
  const [gone, silent, busy] = [await accept(), await accept(), await accept()];
  for (const client of [gone, silent]) client.end();
  await settle();
  gone.write = () => Promise.reject(new Deno.errors.BrokenPipe("reset (fake)"));
  for (let minute = 0; minute < 60; minute++) {
    assertEquals(gone.closed, false, `after ${minute} minutes`);
    await clock.advance(60_000);
    busy.receive();
    await settle();
  }
  await clock.advance(60_000);
  assertEquals([gone.closed, silent.closed, busy.closed], [true, false, false]);
  assertEquals(forwarder.connections, 2);
  silent.write = gone.write;
  await clock.advance(3_600_000);
  assertEquals([silent.closed, busy.closed], [true, false]);
  forwarding.close();
  await forwarding.loops.zero();
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("TcpForwarder closes the longest silent connection for a new one, also just after it looked whether clients are gone", async () => {
  const { clock, forwarding, accept } = setUp({ to: [A] }, { bound: 2 });
  const [silent, other] = [await accept(), await accept()];
  await clock.advance(1_800_000);
  other.receive();
  await clock.advance(1_810_000);
  const third = await accept();
  assertEquals([silent.closed, other.closed, third.closed], [true, false, false]);
  forwarding.close();
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder counts the idle time from the last data, also just after it looked whether clients are gone", async () => {
  const { clock, forwarding, accept } = setUp({ to: [A], edge: { idleMs: 5_400_000 } });
  const client = await accept();
  await clock.advance(3_600_100);
  client.receive();
  await clock.advance(5_399_000);
  assertEquals(client.closed, false);
  await clock.advance(2_000);
  assertEquals([client.closed, clock.pendingTimers], [true, 0]);
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder lets go of a client whose endpoint is still dialled at the end", async () => {
  const { clock, forwarding, forwarder, network, accept, messages } = setUp();
  network.answers.set(A, "hang");
  const client = await accept();
  forwarding.close();
  await forwarding.loops.zero();
  assertEquals([client.closed, forwarder.connections], [true, 0]);
  assertEquals([messages(), clock.pendingTimers], [[], 0] as never);
});

Deno.test("TcpForwarder tells who watches what became of a connection", async () => {
  const { forwarding, network, accept } = setUp({ to: [A] });
  const [at] = serviceAddresses(testServicePlan({ to: [A] }), testSharedPlan());
  const query = { protocol: "TCP", to: at!.address, port: at!.port } as const;
  const ask = () => forwarding.watches.ask("test", { query, now: forwarding.clock.now() });
  await accept();
  assertEquals(ask(), [], "what came before the watch is not kept");
  await accept();
  network.answers.set(A, "refuse");
  await accept();
  const [forwarded, failed] = ask();
  assertEquals([forwarded?.endpoint, forwarded?.client], [A, "192.0.2.1"]);
  assertEquals([failed?.endpoint, failed?.detail], [
    undefined,
    `closed: no endpoint could be reached: ${A} (ECONNREFUSED)`,
  ]);
  forwarding.close();
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder.accept() counts no connection for an endpoint that refused", async () => {
  const edge = { balance: "least-connections" } as const;
  const { forwarding, network, accept } = setUp({ to: [A, B], edge });
  network.answers.set(A, "refuse");
  await accept();
  network.answers.set(A, "accept");
  network.connections[0]!.reset();
  await settle();
  await accept();
  assertEquals(network.dials, [A, B, A]);
  forwarding.close();
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder.update() applies and lifts time-outs of open connections", async () => {
  const { clock, forwarding, forwarder, accept } = setUp({ to: [A] });
  const clients = [await accept(), await accept(), await accept()];
  const closed = () => clients.map((client) => client.closed);
  forwarder.update(testServicePlan({ to: [A], edge: { lifetimeMs: 1000 } }));
  forwarder.update(testServicePlan({ to: [A] }));
  await clock.advance(5000);
  assertEquals(closed(), [false, false, false]);
  forwarder.update(testServicePlan({ to: [A], edge: { lifetimeMs: 1000 } }));
  await clock.advance(900);
  assertEquals(closed(), [false, false, false]);
  await clock.advance(200);
  assertEquals(closed(), [true, true, true]);
  assertEquals(clock.pendingTimers, 0);
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder reports failures of endpoints, and only the first success after one", async () => {
  const { forwarding, forwarder, network, accept } = setUp({ to: [A], edge: { ejectAfter: 3 } });
  const outcomes: string[] = [];
  forwarding.onOutcome = ({ servicePort, endpoint, failure = "connected" }) =>
    outcomes.push(`${servicePort} ${endpoint} ${failure}`);
  for (const answer of ["accept", "refuse", "out-of-sockets", "accept", "accept"] as const) {
    network.answers.set(A, answer);
    await accept();
  }
  assertEquals(outcomes, [`ns/web/TCP ${A} ECONNREFUSED`, `ns/web/TCP ${A} connected`]);
  // Another annotation changes between a failure and the next success.
  network.answers.set(A, "refuse");
  await accept();
  forwarder.update(testServicePlan({ to: [A], edge: { ejectAfter: 3, maxConnections: 9 } }));
  network.answers.set(A, "accept");
  await accept();
  assertEquals(outcomes.slice(2), [`ns/web/TCP ${A} ECONNREFUSED`, `ns/web/TCP ${A} connected`]);
  forwarding.close();
  await forwarding.loops.zero();
});

Deno.test("TcpForwarder reports nothing for a Service that ejects no endpoints", async () => {
  const { forwarding, network, accept } = setUp({ to: [A], edge: { maxConnections: 9 } });
  const outcomes: unknown[] = [];
  forwarding.onOutcome = (outcome) => outcomes.push(outcome);
  network.answers.set(A, "refuse");
  await accept();
  assertEquals(outcomes, []);
  forwarding.close();
  await forwarding.loops.zero();
});

/** A connection to an endpoint, and its other end, as this process accepts it. */
function bothEnds(port: number): readonly [FakeConnection, FakeConnection] {
  const own = { hostname: "127.0.0.1", port };
  const frontend = { hostname: ADDRESS!.address, port: ADDRESS!.port };
  return [
    Object.assign(new FakeConnection(frontend), { localAddr: own }),
    Object.assign(new FakeConnection(own), { localAddr: frontend }),
  ];
}

Deno.test("TcpForwarder recognizes a connection of its own that is accepted after it was closed", async () => {
  const { clock, forwarding, forwarder, network, accept } = setUp({
    ...{ to: [A], edge: { lifetimeMs: 100 } },
  });
  const [endpoint, comesBack] = bothEnds(5000);
  const dial = Promise.withResolvers<FakeConnection>();
  network.connectTcp = () => dial.promise;
  const client = await accept();
  await clock.advance(200);
  dial.resolve(endpoint);
  await settle();
  assertEquals([client.closed, endpoint.closed], [true, true]);
  forwarder.accept(comesBack, ADDRESS!);
  assertEquals([comesBack.closed, forwarding.counters.tcpAccepted], [true, 1]);
  // A second later the port may be that of a client.
  await clock.advance(1000);
  network.connectTcp = () => Promise.resolve(new FakeConnection());
  const [, stranger] = bothEnds(5000);
  forwarder.accept(stranger, ADDRESS!);
  await clock.advance(0);
  assertEquals([stranger.closed, forwarding.counters.tcpAccepted], [false, 2]);
  forwarding.close();
  await forwarding.loops.zero();
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("TcpForwarder closes a connection that another thread notes only after it was accepted", async () => {
  const memory = new SharedArrayBuffer(SHARED_SOCKETS_BYTES);
  const other = new OwnSockets(memory, 1);
  const own = new OwnSockets(memory, 0);
  const { clock, forwarding, forwarder, network } = setUp({ to: [A] }, { own });
  const session = { hops: 0, client: new FakeConnection(), close() {} };
  const [[first, firstBack], [second, secondBack]] = [bothEnds(5000), bothEnds(5001)];
  other.dial(session, first);
  forwarder.accept(firstBack, ADDRESS!);
  // Since one came back, the next one waits.
  forwarder.accept(secondBack, ADDRESS!);
  other.dial(session, second);
  assertEquals([firstBack.closed, secondBack.closed], [true, false]);
  await clock.advance(0);
  assertEquals([secondBack.closed, forwarder.connections, network.dials], [true, 0, []] as never);
  forwarding.close();
  await forwarding.loops.zero();
});
