import { assert, assertEquals } from "@std/assert";
import { OpenFiles } from "../../../lib/os/open_files.ts";
import { type SocketAddress, systemNetwork, type UdpSocket } from "../../../lib/os/network.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { ConnectionJudge } from "../../../lib/policy/connection_judge.ts";
import { PolicyPlanner } from "../../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../../lib/policy/policy_state.ts";
import { IPV4_PLAN, setPod, setPolicy } from "../../../tests/support/builders/policy_objects.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeConnection, FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import {
  type TestServicePlan,
  testServicePlan,
  testSharedPlan,
} from "../../../tests/support/builders/service_plans.ts";
import { TcpServer } from "../../../tests/support/drivers/tcp_peers.ts";
import { engineUnderTest } from "../../../tests/support/drivers/turned_engine.ts";
import { UdpPeer } from "../../../tests/support/drivers/udp_peer.ts";
import { Forwarding } from "../forwarding.ts";
import { serviceAddresses } from "../listeners.ts";
import { TcpForwarder } from "../tcp/tcp_forwarder.ts";
import { UdpForwarder, UdpPort } from "./udp_forwarder.ts";

/** A Service on a loopback address, forwarded over real sockets in a time that stands still. */
class ForwardedService implements AsyncDisposable {
  readonly clock = new FakeClock();
  readonly logger = new MemoryLogger();
  readonly forwarding: Forwarding;
  readonly forwarder: UdpForwarder;
  readonly port: UdpPort;
  readonly address: SocketAddress;
  readonly #turned: ReturnType<typeof engineUnderTest>;

  constructor(
    options: TestServicePlan,
    { maxFlows = 100, judge, openFiles, hasFakes }: {
      readonly maxFlows?: number;
      /** Connections that are no sockets: no engine but Deno's can relay them. */
      readonly hasFakes?: boolean;
      readonly openFiles?: OpenFiles;
      readonly judge?: ConnectionJudge;
    } = {},
  ) {
    const network = systemNetwork;
    const { clock, logger } = this;
    this.#turned = hasFakes ? undefined : engineUnderTest();
    const engine = this.#turned?.engine;
    this.forwarding = new Forwarding(
      { clock, logger, network, ...(engine && { engine }), ...(openFiles && { openFiles }) },
      { udpTimeoutMs: 10_000, maxFlowsPerService: maxFlows, ...(judge && { judge }) },
    );
    const plan = planOf(options);
    const at = serviceAddresses(plan, testSharedPlan())[0]!;
    this.forwarder = new UdpForwarder(this.forwarding, plan);
    const socket = this.forwarding.engine.listenUdp({ hostname: at.address, port: 0 });
    this.port = new UdpPort(this.forwarding, socket, this.forwarder, at);
    this.address = { hostname: at.address, port: socket.addr.port };
    this.port.start();
  }

  get flows(): number {
    return this.forwarder.connections;
  }

  /** Waits until a datagram of a stranger is dropped. The kernel does that for a connected socket, unseen. */
  async dropped(): Promise<void> {
    if (this.#turned) return;
    await eventually("dropped", () => this.forwarding.counters.udpForeignDropped === 1);
  }

  update(options: TestServicePlan): void {
    this.forwarder.update(planOf(options));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.port.close();
    this.forwarder.close();
    await this.forwarding.loops.zero();
    await this.#turned?.[Symbol.asyncDispose]();
    assertEquals([this.flows, this.forwarding.flows.value], [0, 0]);
    assertEquals(this.clock.pendingTimers, 0);
  }
}

function planOf(options: TestServicePlan) {
  return testServicePlan({ protocol: "UDP", clusterIp: "127.96.0.53", ...options });
}

/** An endpoint that answers with its name and what it got. */
function named(name: string): UdpPeer {
  return UdpPeer.open({ answer: (text) => `${name} ${text}` });
}

Deno.test("UdpForwarder passes the longest and the shortest datagram unchanged", async () => {
  await using endpoint = UdpPeer.open({ answer: (text) => text });
  await using client = UdpPeer.open();
  await using service = new ForwardedService({ to: [endpoint.endpoint] });
  for (const length of [65_507, 0, 1, 9000, 65_507]) {
    const data = Uint8Array.from({ length }, (_, index) => 97 + index % 23);
    await client.send(data, service.address);
    const { text } = await client.next();
    assert(text === new TextDecoder().decode(data), `${length} bytes came back as ${text.length}`);
  }
});

Deno.test("UdpForwarder drops and counts what does not come from the endpoint", async () => {
  await using stranger = UdpPeer.open();
  await using endpoint = UdpPeer.open();
  await using client = UdpPeer.open();
  await using service = new ForwardedService({ to: [endpoint.endpoint] });
  await client.send("hello", service.address);
  const { from } = await endpoint.next();
  await stranger.send("forged", { hostname: "127.0.0.1", port: from.port });
  await service.dropped();
  await endpoint.send("real", { hostname: "127.0.0.1", port: from.port });
  assertEquals((await client.next()).text, "real");
  assertEquals(client.pending, 0);
});

Deno.test("UdpForwarder.update() moves flows whose endpoint goes, at once, and no others", async () => {
  await using a = named("a");
  await using b = named("b");
  await using client1 = UdpPeer.open();
  await using client2 = UdpPeer.open();
  const both = [a, b].sort((x, y) => x.endpoint < y.endpoint ? -1 : 1);
  await using service = new ForwardedService({ to: both.map(({ endpoint }) => endpoint) });
  const ask = async (client: UdpPeer) => {
    await client.send("x", service.address);
    return (await client.next()).text[0];
  };
  const before = [await ask(client1), await ask(client2)];
  const staying = before[1] === "a" ? a : b;
  service.update({ to: [staying.endpoint] });
  assertEquals(service.forwarding.counters.udpMoved, 1);
  assertEquals([await ask(client1), await ask(client2)], [before[1], before[1]]);
  assertEquals(service.flows, 2);
});

Deno.test("UdpForwarder serves on after an update to an endpoint that cannot be reached", async () => {
  await using server = named("a");
  await using client = UdpPeer.open();
  await using service = new ForwardedService({ to: [server.endpoint] });
  for (const _ of ["before", "after"]) {
    await client.send("x", service.address);
    assertEquals((await client.next()).text[0], "a");
    // The kernel does not permit broadcasts.
    service.update({ to: ["255.255.255.255:9"] });
    service.update({ to: [server.endpoint] });
  }
});

Deno.test("UdpForwarder drops what the former endpoint of a flow still sends", async () => {
  await using former = UdpPeer.open();
  await using next = UdpPeer.open();
  await using client = UdpPeer.open();
  await using service = new ForwardedService({ to: [former.endpoint] });
  await client.send("1", service.address);
  const { from } = await former.next();
  service.update({ to: [next.endpoint] });
  await former.send("late", { hostname: "127.0.0.1", port: from.port });
  await service.dropped();
  await client.send("2", service.address);
  assertEquals((await next.next()).from.port, from.port, "the flow keeps its socket");
  assertEquals(client.pending, 0);
});

Deno.test("UdpForwarder.update() ends flows of clients that may not come any more", async () => {
  await using endpoint = named("a");
  await using client = UdpPeer.open();
  await using service = new ForwardedService({ to: [endpoint.endpoint] });
  await client.send("x", service.address);
  await client.next();
  const admitsNobody = {
    to: [endpoint.endpoint],
    loadBalancerVips: ["127.96.0.54"],
    sourceRanges: [],
  };
  const at = serviceAddresses(planOf(admitsNobody), testSharedPlan())[1]!;
  service.port.assign(service.forwarder, at);
  assertEquals(service.flows, 1);
  service.update(admitsNobody);
  assertEquals(service.flows, 0);
});

Deno.test("UdpForwarder ends a flow that is idle in both directions", async () => {
  await using endpoint = UdpPeer.open();
  await using client = UdpPeer.open();
  await using service = new ForwardedService({ to: [endpoint.endpoint] });
  await client.send("x", service.address);
  const { from } = await endpoint.next();
  await service.clock.advance(9000);
  await endpoint.send("y", { hostname: "127.0.0.1", port: from.port });
  await client.next();
  await service.clock.advance(9000);
  assertEquals(service.flows, 1, "the reply counts");
  await client.send("z", service.address);
  assertEquals((await endpoint.next()).from.port, from.port);
  await service.clock.advance(9900);
  assertEquals(service.flows, 1, "the client's datagram counts");
  await service.clock.advance(200);
  assertEquals(service.flows, 0);
});

Deno.test("UdpForwarder ends the longest unused flow at the bound", async () => {
  await using endpoint = named("a");
  await using client1 = UdpPeer.open();
  await using client2 = UdpPeer.open();
  await using client3 = UdpPeer.open();
  await using service = new ForwardedService({ to: [endpoint.endpoint] }, { maxFlows: 2 });
  for (const client of [client1, client2, client1, client3]) {
    await client.send("x", service.address);
    await client.next();
    await service.clock.advance(1000);
  }
  assertEquals([service.flows, service.forwarding.counters.udpFlows], [2, 3]);
  await client1.send("x", service.address);
  await client1.next();
  assertEquals(service.forwarding.counters.udpFlows, 3, "client 1 was used after client 2");
  assertEquals(service.logger.lines.map(({ message }) => message), [
    "Closed the longest idle flow for a new one",
  ]);
});

for (const count of [2, 3]) {
  Deno.test(`UdpForwarder ends the circle of a datagram through ${count} nodes`, async () => {
    await using client = UdpPeer.open();
    await using stack = new globalThis.AsyncDisposableStack();
    const nodes = Array.from(
      { length: count },
      () => stack.use(new ForwardedService({ to: [] }, { maxFlows: 20 })),
    );
    for (const [index, node] of nodes.entries()) {
      const { hostname, port } = nodes[(index + 1) % count]!.address;
      node.update({ to: [`${hostname}:${port}`] });
    }
    await client.send("x", nodes[0]!.address);
    const dropped = () =>
      nodes.reduce((sum, { forwarding }) => sum + forwarding.counters.udpDropped, 0);
    await eventually("the datagram is dropped", () => dropped() > 0);
    const opened = nodes.map(({ forwarding }) => forwarding.counters.udpFlows);
    assert(Math.max(...opened) <= 20 + 8, `${opened} flows`);
    for (const { clock } of nodes) await clock.advance(11_000);
    assertEquals(nodes.map(({ flows }) => flows), nodes.map(() => 0));
    assertEquals(nodes.map(({ forwarding }) => forwarding.counters.udpFlows), opened);
  });
}

Deno.test("UdpForwarder gets the files of silent TCP connections of its Service, and of no busy ones", async () => {
  await using server = TcpServer.named("tcp");
  await using endpoint = named("udp");
  await using client = UdpPeer.open();
  const openFiles = new OpenFiles(100);
  await using service = new ForwardedService({ to: [endpoint.endpoint] }, {
    ...{ openFiles, hasFakes: true },
  });
  const { clock, forwarding, logger } = service;
  const tcp = new TcpForwarder(forwarding, testServicePlan({ to: [server.endpoint] }));
  const connections: FakeConnection[] = [];
  while (connections.at(-1)?.closed !== true) {
    connections.push(new FakeConnection());
    tcp.accept(connections.at(-1)!, service.port.at);
  }
  connections.pop();
  await eventually("all are connected", () => server.accepted === connections.length);
  await clock.advance(9000);
  await client.send("x", service.address);
  await eventually("dropped", () => forwarding.counters.udpDropped === 1);
  assertEquals(logger.lines.at(-1)?.message, "Refused a flow: too few open files or ports remain");
  await clock.advance(1000);
  await client.send("y", service.address);
  assertEquals((await client.next()).text, "udp y");
  assertEquals(connections.map(({ closed }) => closed).lastIndexOf(true), 0, "the first one");
  // The flow's file, and another one that is free.
  assertEquals(openFiles.open.traffic, 2 * (connections.length - 1) + 1);
  forwarding.close();
});

Deno.test("UdpForwarder drops nothing at the bound of clients that get answers", async () => {
  await using endpoint = named("a");
  await using service = new ForwardedService({ to: [endpoint.endpoint] }, { maxFlows: 2 });
  // They stay open: a port that is used again would belong to an earlier flow.
  await using clients = new globalThis.AsyncDisposableStack();
  for (let count = 0; count < 20; count++) {
    const client = clients.use(UdpPeer.open());
    await client.send("x", service.address);
    await client.next();
  }
  const { udpFlows, udpDropped } = service.forwarding.counters;
  assertEquals([udpFlows, udpDropped], [20, 0]);
});

Deno.test("UdpForwarder takes no new flows while draining, and keeps open ones", async () => {
  await using endpoint = named("a");
  await using client1 = UdpPeer.open();
  await using client2 = UdpPeer.open();
  await using service = new ForwardedService({ to: [endpoint.endpoint] });
  await client1.send("x", service.address);
  await client1.next();
  service.forwarding.draining = true;
  await client2.send("x", service.address);
  await client1.send("y", service.address);
  assertEquals((await client1.next()).text, "a y");
  assertEquals([service.flows, service.forwarding.counters.udpDropped], [1, 1]);
});

Deno.test("UdpForwarder.open() gives up when no socket is left, and reports it", () => {
  const logger = new MemoryLogger();
  const forwarding = new Forwarding(
    { clock: new FakeClock(), logger, network: new FakeNetwork() },
    { udpTimeoutMs: 1000 },
  );
  const plan = planOf({ to: ["10.0.0.1:53"], edge: { maxPerClient: 1 } });
  const at = serviceAddresses(plan, testSharedPlan())[0]!;
  const port = { at } as UdpPort;
  const forwarder = new UdpForwarder(forwarding, plan);
  const client = { hostname: "192.0.2.1", port: 1 };
  for (let count = 0; count < 2; count++) {
    assertEquals(forwarder.open(port, { sender: client, client }), undefined);
  }
  assertEquals(logger.lines.map(({ message }) => message), ["Cannot open a socket for a flow"]);
  assertEquals(forwarding.counters.udpLimited, 0, "a flow that did not begin counts for no limit");
});

Deno.test("UdpForwarder takes no datagram of a flow that has ended in the same turn", async () => {
  const [clock, network] = [new FakeClock(), new FakeNetwork()];
  const received: PromiseWithResolvers<[Uint8Array, SocketAddress]>[] = [];
  const listenUdp = (): UdpSocket => {
    const own = Promise.withResolvers<[Uint8Array, SocketAddress]>();
    const addr = { hostname: "0.0.0.0", port: received.push(own) };
    const send = () => Promise.resolve(0);
    return { addr, send, receive: () => own.promise, close: () => own.reject(new Error("closed")) };
  };
  Object.assign(network, { listenUdp });
  const forwarding = new Forwarding({ clock, logger: new MemoryLogger(), network }, {
    udpTimeoutMs: 10_000,
  });
  const plan = planOf({ to: ["10.0.0.1:53"] });
  const at = serviceAddresses(plan, testSharedPlan())[0]!;
  const forwarder = new UdpForwarder(forwarding, plan);
  const socket = forwarding.engine.listenUdp({ hostname: at.address, port: 0 });
  const port = new UdpPort(forwarding, socket, forwarder, at);
  for (let number = 1; number <= 3; number++) {
    const client = { hostname: "192.0.2.1", port: number };
    const flow = await forwarder.open(port, { sender: client, client });
    if (number !== 2) continue;
    await clock.advance(5_000);
    received[2]!.resolve([new Uint8Array(1), { hostname: "10.0.0.1", port: 53 }]);
    forwarder.end(flow!);
    // As a port does that learns only now that the flow was opened.
    forwarder.end(flow!);
  }
  await clock.advance(4_000);
  assertEquals([forwarder.connections, forwarding.flows.value], [2, 2]);
  await clock.advance(10_000);
  assertEquals([forwarder.connections, forwarding.flows.value], [0, 0]);
});

Deno.test("UdpForwarder drops what policies deny, and ends a flow that would move to such an endpoint", async () => {
  const state = new PolicyState();
  const planner = new PolicyPlanner(state, IPV4_PLAN);
  const judge = new ConnectionJudge();
  setPod(state, "default/client", { address: "127.0.0.1" });
  setPod(state, "default/closed", { address: "127.0.0.3", labels: { app: "closed" } });
  setPolicy(state, "default/closed", { podSelector: { matchLabels: { app: "closed" } } });
  const changes = planner.update();
  for (const _ of judge.takeInSteps(planner.plan, changes));
  await using open = UdpPeer.open({ hostname: "127.0.0.2", answer: () => "open" });
  await using closed = UdpPeer.open({ hostname: "127.0.0.3", answer: () => "closed" });
  await using client = UdpPeer.open();
  await using service = new ForwardedService({ to: [open.endpoint] }, { judge });
  await client.send("x", service.address);
  assertEquals((await client.next()).text, "open");
  service.update({ to: [closed.endpoint] });
  assertEquals(service.flows, 0, "the flow has nowhere to go");
  await client.send("x", service.address);
  const { counters } = service.forwarding;
  await eventually("the datagram is dropped", () => counters.udpDropped === 1);
  assertEquals([counters.udpDenied, closed.pending, service.flows], [1, 0, 0]);
});

Deno.test("UdpForwarder.update() applies another idle time to open flows", async () => {
  await using endpoint = UdpPeer.open({ answer: () => "yes" });
  await using client = UdpPeer.open();
  const to = [endpoint.endpoint];
  await using test = new ForwardedService({ to, edge: { idleMs: 60_000 } });
  await client.send("a", test.address);
  await client.next();
  await test.clock.advance(20_000);
  assertEquals(test.flows, 1, "longer than the time-out of the node");
  test.update({ to, edge: { idleMs: 30_000 } });
  await test.clock.advance(9000);
  assertEquals(test.flows, 1);
  await test.clock.advance(2000);
  assertEquals(test.flows, 0, "30 seconds after its last datagram");
});
