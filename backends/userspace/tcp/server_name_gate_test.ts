import { assertEquals } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { EdgeSettings } from "../../../lib/proxy/edge_settings.ts";
import type { SocketAddress } from "../../../lib/os/network.ts";
import { OpenFiles } from "../../../lib/os/open_files.ts";
import { testServicePlan, testSharedPlan } from "../../../tests/support/builders/service_plans.ts";
import { FakeClock, settle } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeConnection, FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { Forwarding } from "../forwarding.ts";
import { type ServiceAddress, serviceAddresses } from "../listeners.ts";
import { ServerNameGate } from "./server_name_gate.ts";
import { TcpForwarder } from "./tcp_forwarder.ts";

const PLAN = testServicePlan({ to: ["10.0.0.1:80"] });
const { key: KEY } = PLAN;
const [AT] = serviceAddresses(PLAN, testSharedPlan()) as [ServiceAddress];

/** A gate before a Service that takes all names. Fake connections send bytes that are not TLS. */
function setUp(openFiles = new OpenFiles(), edge?: EdgeSettings) {
  const [clock, logger] = [new FakeClock(), new MemoryLogger()];
  const forwarding = new Forwarding(
    { clock, logger, network: new FakeNetwork(), openFiles },
    { udpTimeoutMs: 1000 },
  );
  const forwarder = new TcpForwarder(forwarding, { ...PLAN, ...(edge && { edge }) });
  const gate = new ServerNameGate(forwarding, AT.socket);
  gate.share(forwarder, { ...AT, names: ["*"] });
  const accept = async (hostname = "192.0.2.1") => {
    const client: SocketAddress = { hostname, port: 5000 };
    const connection = new FakeConnection(client);
    gate.accept(connection);
    await settle();
    return connection;
  };
  const end = async () => {
    forwarding.close();
    await forwarding.loops.zero();
    assertEquals([openFiles.open.traffic, forwarding.sessions.value], [0, 0]);
    assertEquals(clock.pendingTimers, 0);
  };
  const messages = () => logger.lines.map(({ message, fields }) => `${message}: ${fields.reason}`);
  return { clock, forwarding, forwarder, gate, accept, end, messages };
}

Deno.test("ServerNameGate closes connections without a ClientHello after three seconds", async () => {
  const { accept, clock, end, forwarder, forwarding, gate, messages } = setUp();
  const [silent, prompt] = [await accept(), await accept()];
  assertEquals([gate.size, forwarder.connections], [2, 0]);
  await clock.advance(2900);
  prompt.receive();
  await settle();
  assertEquals([gate.size, forwarder.connections], [1, 1]);
  await clock.advance(200);
  assertEquals([silent.closed, prompt.closed, gate.size], [true, false, 0]);
  assertEquals(messages(), [
    "Closed a connection without a valid ClientHello: it did not come in time",
  ]);
  assertEquals(forwarding.counters.serverNameErrors, 1);
  await end();
});

Deno.test("ServerNameGate shows what becomes of connections that no Service gets", async () => {
  const { accept, clock, end, forwarding, gate } = setUp();
  const { address: to, port } = AT;
  const seen = () =>
    forwarding.watches.ask("w", { query: { protocol: "TCP", to, port }, now: clock.now() })
      .map(({ detail }) => detail);
  assertEquals(seen(), []);
  (await accept()).end();
  await accept();
  await clock.advance(3100);
  const nameless = await accept();
  gate.share({ accept() {}, trusts: () => false, key: KEY }, { ...AT, names: ["a.test"] });
  nameless.receive();
  await settle();
  assertEquals(seen(), [
    "closed: it ended before a ClientHello came",
    "closed, as it has no valid ClientHello: it did not come in time",
    "closed: no Service here has its server name, (none)",
  ]);
  await end();
});

Deno.test("ServerNameGate lets no client have more than an eighth of those that wait", async () => {
  const { accept, end, forwarding, gate } = setUp();
  const hoard = [];
  for (let count = 0; count < 130; count++) hoard.push(await accept());
  assertEquals(hoard.filter(({ closed }) => closed).length, 2);
  assertEquals([gate.size, forwarding.counters.tcpRefused], [128, 2]);
  hoard[0]!.receive();
  hoard[1]!.end();
  hoard[2]!.reset();
  await settle();
  assertEquals([(await accept()).closed, (await accept("192.0.2.2")).closed], [false, false]);
  assertEquals(gate.size, 127);
  await end();
});

Deno.test("ServerNameGate lets a proxy that stands for many clients wait with as many as fit", async () => {
  const { accept, end, gate } = setUp(undefined, { acceptProxyFrom: [parseCidr("192.0.2.1/32")] });
  for (let count = 0; count < 200; count++) await accept();
  assertEquals(gate.size, 200);
  await end();
});

Deno.test("ServerNameGate closes the connection that has waited longest when very many wait", async () => {
  const { accept, end, gate } = setUp();
  const waiting = [];
  for (let count = 0; count < 1026; count++) waiting.push(await accept(`192.0.2.${count % 250}`));
  assertEquals(waiting.map(({ closed }) => closed).lastIndexOf(true), 1);
  assertEquals(gate.size, 1024);
  await end();
});

Deno.test("ServerNameGate takes no open files from Services, and gives late ones back", async () => {
  const { accept, clock, end, forwarder, gate } = setUp(new OpenFiles(100));
  const waiting = [];
  for (let closed = false; !closed; closed = waiting.at(-1)!.closed) waiting.push(await accept());
  const most = gate.size;
  const served = new FakeConnection();
  forwarder.accept(served, AT);
  await settle();
  assertEquals([served.closed, gate.size], [false, most]);
  await clock.advance(250);
  assertEquals([(await accept()).closed, waiting[0]!.closed, gate.size], [false, true, most]);
  await end();
});
