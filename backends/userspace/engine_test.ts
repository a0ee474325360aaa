import { assertEquals, assertRejects, assertStrictEquals } from "@std/assert";
import { systemClock } from "../../lib/os/clock.ts";
import { systemNetwork, type TcpConnection } from "../../lib/os/network.ts";
import { systemErrorOf } from "../../lib/os/socket_errors.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { readToEnd, writeFully } from "../../tests/support/drivers/tcp_peers.ts";
import { UdpPeer } from "../../tests/support/drivers/udp_peer.ts";
import { LIBC, TurnedEngine } from "../../tests/support/drivers/turned_engine.ts";
import { testNeeding } from "../../tests/support/requirement.ts";
import {
  ConnectAttempt,
  DenoEngine,
  type Engine,
  type EngineConnection,
  type Relay,
  type RelayUser,
} from "./engine.ts";

import { Libc } from "./syscalls/libc.ts";

/** Closes what it relays, as sessions do. */
class User implements RelayUser {
  closed = false;
  activity = 0;
  bytes = 0;
  readonly ended = Promise.withResolvers<void>();

  constructor(readonly connections: readonly EngineConnection[]) {}

  onData(_isFromClient: boolean, bytes: number): void {
    this.activity++;
    this.bytes += bytes;
  }

  close(): void {
    if (this.closed) return;
    this.closed = true;
    for (const each of this.connections) each.close();
  }

  onEnded(): void {
    this.ended.resolve();
  }
}

class AwaitedAttempt extends ConnectAttempt {
  readonly done = Promise.withResolvers<EngineConnection>();

  override onConnected(connection: EngineConnection): void {
    this.done.resolve(connection);
  }

  override onFailed(error: unknown): void {
    this.done.reject(error);
  }
}

/** Client and endpoint of a relay, over real sockets. */
interface Relayed {
  readonly user: User;
  readonly client: Deno.TcpConn;
  readonly endpoint: Deno.TcpConn;
  readonly relay: Relay;
}

async function relayedBy(engine: Engine): Promise<Relayed> {
  const source = engine.listenTcp({ hostname: "127.0.0.1", port: 0 });
  const accepted = Promise.withResolvers<EngineConnection>();
  const served = source.serve({ take: accepted.resolve, onError: accepted.reject });
  const client = await Deno.connect({ hostname: "127.0.0.1", port: source.addr.port });
  const fromClient = await accepted.promise;
  source.close();
  await served;
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const attempt = new AwaitedAttempt();
  engine.connect(listener.addr, attempt, undefined);
  const [toEndpoint, endpoint] = await Promise.all([attempt.done.promise, listener.accept()]);
  const user = new User([fromClient, toEndpoint]);
  return { user, client, endpoint, relay: engine.relay(fromClient, toEndpoint, user) };
}

const SYSCALLS = testNeeding("SyscallEngine", [LIBC]);

interface TestedEngine extends AsyncDisposable {
  readonly engine: Engine;
}

const ENGINES: readonly {
  readonly name: string;
  readonly declare: ReturnType<typeof testNeeding>;
  create(): TestedEngine;
}[] = [
  {
    name: "DenoEngine",
    declare: Deno.test,
    create: () => ({
      engine: new DenoEngine(systemNetwork, systemClock),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    }),
  },
  {
    name: "SyscallEngine",
    declare: SYSCALLS,
    create: () => new TurnedEngine(),
  },
];

/** A test of each engine. */
function test(name: string, run: (relay: () => Promise<Relayed>, engine: Engine) => Promise<void>) {
  for (const { name: engine, declare, create } of ENGINES) {
    declare(`${engine}: ${name}`, async () => {
      await using tested = create();
      await run(() => relayedBy(tested.engine), tested.engine);
    });
  }
}

async function assertGone({ user }: Relayed): Promise<void> {
  await user.ended.promise;
  assertEquals(user.closed, true);
}

/** Bytes that are not alike, so that a lost or doubled piece is seen. */
function pattern(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => 97 + index % 23);
}

const MEGABYTE = 1 << 20;

test("Engine.relay() copies 1 MB each way at once", async (relayed) => {
  const relay = await relayed();
  const { client, endpoint } = relay;
  using _client = client;
  using _endpoint = endpoint;
  const data = pattern(MEGABYTE);
  const send = async (connection: Deno.TcpConn) => {
    await writeFully(connection, data);
    await connection.closeWrite();
  };
  const [, , atClient, atEndpoint] = await Promise.all([
    send(client),
    send(endpoint),
    readToEnd(client),
    readToEnd(endpoint),
  ]);
  assertEquals(atClient.text === new TextDecoder().decode(data), true);
  assertEquals(atEndpoint.text === atClient.text, true);
  await assertGone(relay);
});

for (const first of ["client", "endpoint"] as const) {
  test(`Engine.relay() continues one way after the ${first} has ended the other`, async (relayed) => {
    const relay = await relayed();
    const [early, late] = first === "client"
      ? [relay.client, relay.endpoint]
      : [relay.endpoint, relay.client];
    using _early = early;
    using _late = late;
    await early.closeWrite();
    assertEquals((await readToEnd(late)).bytes, 0);
    const [, { bytes }] = await Promise.all([
      writeFully(late, pattern(MEGABYTE)).then(() => late.closeWrite()),
      readToEnd(early),
    ]);
    assertEquals(bytes, MEGABYTE);
    await assertGone(relay);
  });
}

/** Closes a connection with data unread in it, which Linux answers with a reset. */
async function reset(connection: Deno.TcpConn, peer: Deno.TcpConn): Promise<void> {
  await writeFully(peer, pattern(1000));
  await connection.read(new Uint8Array(1));
  connection.close();
}

for (const breaker of ["client", "endpoint"] as const) {
  test(`Engine.relay() ends both sides when the ${breaker} resets`, async (relayed) => {
    const relay = await relayed();
    const [broken, other] = breaker === "client"
      ? [relay.client, relay.endpoint]
      : [relay.endpoint, relay.client];
    using _other = other;
    await reset(broken, other);
    await readToEnd(other).catch(() => {});
    await assertGone(relay);
  });
}

test("Engine.relay() ends when one side reads no more and the other writes on", async (relayed) => {
  const relay = await relayed();
  using endpoint = relay.endpoint;
  relay.client.close();
  await assertRejects(async () => {
    for (;;) await writeFully(endpoint, pattern(65_536));
  });
  await assertGone(relay);
});

test("Engine.relay() ends when its user closes connections in which nothing happens", async (relayed) => {
  const relay = await relayed();
  using client = relay.client;
  using endpoint = relay.endpoint;
  relay.user.close();
  relay.user.close();
  await assertGone(relay);
  assertEquals((await readToEnd(client)).bytes + (await readToEnd(endpoint)).bytes, 0);
});

test("Engine.relay() ends when its user closes connections whose peer does not read", async (relayed) => {
  const relay = await relayed();
  using client = relay.client;
  using _endpoint = relay.endpoint;
  let sent = 0;
  const flood = (async () => {
    for (;;) sent += await client.write(pattern(65_536));
  })().catch(() => {});
  await eventually("the sockets are full", async () => {
    const before = sent;
    await new Promise((resolve) => setTimeout(resolve, 50));
    return sent > 65_536 && sent === before;
  });
  relay.user.close();
  await assertGone(relay);
  await flood;
});

test(
  "Engine.connect() fails with the name of the system's error, and not after it was abandoned in time",
  async (_, engine) => {
    const unused = Deno.listen({ hostname: "127.0.0.1", port: 0 });
    const { addr } = unused;
    unused.close();
    for (
      const [at, isAbandoned, expected] of [
        [addr, false, "ECONNREFUSED"],
        [{ hostname: "::1", port: addr.port }, false, "ECONNREFUSED"],
        [addr, true, "the attempt to connect took too long"],
      ] as const
    ) {
      const attempt = new AwaitedAttempt();
      if (isAbandoned) attempt.abandon();
      engine.connect(at, attempt, undefined);
      const error = await attempt.done.promise.then(() => {}, (error) => error);
      assertEquals(systemErrorOf(error) ?? error.message, expected);
    }
  },
);

/** Whether the peer's connection was reset, not only ended. */
async function isReset(connection: Deno.TcpConn): Promise<boolean> {
  const read = await connection.read(new Uint8Array(1)).catch(() => "reset" as const);
  return read === "reset";
}

for (const [breaker, other] of [["client", "endpoint"], ["endpoint", "client"]] as const) {
  SYSCALLS(
    `SyscallEngine.relay() passes on that the ${breaker} has reset its connection`,
    async () => {
      await using turned = new TurnedEngine();
      const relay = await relayedBy(turned.engine);
      using _other = relay[other];
      await writeFully(relay[other], pattern(10));
      await eventually("it has come", () => relay.user.activity === 1);
      // Closed with data that it has not read, a socket is reset.
      relay[breaker].close();
      assertEquals(await isReset(relay[other]), true);
      await assertGone(relay);
    },
  );
}

SYSCALLS(
  "FlowSocket of SyscallEngine survives that nobody listened, and loses no later datagram",
  async () => {
    await using turned = new TurnedEngine();
    const open = (port: number) =>
      Deno.listenDatagram({ transport: "udp", hostname: "127.0.0.1", port });
    const gone = open(0);
    const { port } = gone.addr as Deno.NetAddr;
    gone.close();
    const flow = turned.engine.openFlow({ hostname: "127.0.0.1", port });
    let lost = 0;
    const served = flow.serve({ take() {}, onForeign() {}, onLost: () => lost++ });
    flow.send(new Uint8Array([1]));
    const endpoint = open(port);
    // That the first one was refused is reported to this one, which is sent again.
    flow.send(new Uint8Array([2]));
    assertEquals((await endpoint.receive())[0], new Uint8Array([2]));
    flow.close();
    await served;
    endpoint.close();
    assertEquals(lost, 0);
  },
);

SYSCALLS(
  "SyscallEngine.relay() keeps what waits for a slow peer apart from what others send",
  async () => {
    // Without pipes, all goes through one buffer.
    const libc = Object.assign(new Libc(), { pipe: () => undefined });
    await using turned = new TurnedEngine([], libc);
    const [slow, other] = [await relayedBy(turned.engine), await relayedBy(turned.engine)];
    const data = pattern(16 * MEGABYTE);
    const sent = writeFully(slow.client, data).then(() => slow.client.closeWrite());
    await eventually("it waits", () => slow.user.activity > 0);
    const noise = writeFully(other.client, new Uint8Array(2 * MEGABYTE))
      .then(() => other.client.closeWrite());
    assertEquals((await readToEnd(other.endpoint)).bytes, 2 * MEGABYTE);
    const { text } = await readToEnd(slow.endpoint);
    await Promise.all([sent, noise]);
    assertEquals(text === new TextDecoder().decode(data), true);
    for (const each of [slow, other]) {
      each.endpoint.close();
      await assertGone(each);
      each.client.close();
    }
  },
);

SYSCALLS("SyscallEngine.relay() loses nothing that was under way before a reset", async () => {
  await using turned = new TurnedEngine();
  const relay = await relayedBy(turned.engine);
  using client = relay.client;
  await writeFully(client, pattern(10));
  await eventually("it has come", () => relay.user.activity === 1);
  await writeFully(relay.endpoint, pattern(MEGABYTE));
  // Closed with data that it has not read, a socket is reset.
  relay.endpoint.close();
  const { bytes } = await readToEnd(client);
  await assertGone(relay);
  assertEquals(bytes, relay.user.bytes - 10);
});

SYSCALLS(
  "UDP sockets of SyscallEngine keep the datagrams of one batch, and of endpoints, apart",
  async () => {
    await using turned = new TurnedEngine();
    const { engine } = turned;
    await using a = UdpPeer.open();
    await using b = UdpPeer.open();
    await using client = UdpPeer.open();
    const addressOf = (peer: UdpPeer) => ({
      ...{ hostname: "127.0.0.1", port: Number(peer.endpoint.split(":")[1]) },
    });
    const socket = engine.listenUdp({ hostname: "127.0.0.1", port: 0 });
    const flows = [a, b].map((peer) => engine.openFlow(addressOf(peer)));
    // They wait in the kernel until the socket is served.
    for (const text of ["0", "1", "0", "1"]) await client.send(text, socket.addr);
    const served = socket.serve({
      take: (data) => flows[Number(new TextDecoder().decode(data))]!.send(data),
    });
    for (const [peer, text] of [[a, "0"], [b, "1"], [a, "0"], [b, "1"]] as const) {
      assertEquals((await peer.next()).text, text);
    }
    // A datagram of the former endpoint waits when a flow moves.
    const flow = flows[0]!;
    await a.send("late", { hostname: "127.0.0.1", port: flow.port });
    flow.move(addressOf(b));
    await b.send("next", { hostname: "127.0.0.1", port: flow.port });
    const taken = Promise.withResolvers<string>();
    const flowing = flow.serve({
      take: (data) => taken.resolve(new TextDecoder().decode(data)),
      onForeign() {},
      onLost() {},
    });
    assertEquals(await taken.promise, "next");
    for (const each of [socket, ...flows]) each.close();
    await Promise.all([served, flowing]);
  },
);

/** A connection that reads what the test says, each read once it is asked for. */
function scripted(sizes: readonly number[]): TcpConnection & { readonly buffers: number[] } {
  const left = [...sizes];
  const address = { hostname: "127.0.0.1", port: 1 };
  const buffers: number[] = [];
  return {
    buffers,
    localAddr: address,
    remoteAddr: address,
    read(buffer) {
      buffers.push(buffer.length);
      const size = left.shift();
      return Promise.resolve(size === undefined ? null : Math.min(size, buffer.length));
    },
    write: (data) => Promise.resolve(Math.ceil(data.length / 3)),
    closeWrite: () => Promise.resolve(),
    close() {},
    setNoDelay() {},
    setKeepAlive() {},
  };
}

/** Relays between two scripts. Returns the lengths of the buffers that the client was read into. */
async function relayScripts(
  engine: DenoEngine,
  sizes: readonly number[],
): Promise<readonly number[]> {
  const [client, endpoint] = [scripted(sizes), scripted([10])];
  const user = new User([client, endpoint]);
  engine.relay(client, endpoint, user);
  await user.ended.promise;
  assertEquals(user.activity, sizes.length + 1);
  return client.buffers;
}

Deno.test("DenoEngine.relay() takes a large buffer when reads fill the small one, and reports each read", async () => {
  const engine = new DenoEngine(systemNetwork, systemClock);
  const sizes = [10, 4096, 65_536, 5000, ...Array(17).fill(10)];
  const buffers = await relayScripts(engine, sizes);
  assertEquals(buffers, [4096, 4096, ...Array(18).fill(65_536), 4096, 4096]);
  // All were given back, and are taken again.
  const again = [engine.small.take(), engine.small.take()];
  for (const buffer of again) engine.small.give(buffer);
  const large = engine.large.take();
  engine.large.give(large);
  await relayScripts(engine, sizes);
  assertEquals([engine.small.take(), engine.small.take()].toReversed(), again);
  assertStrictEquals(engine.large.take(), large);
});

Deno.test("Engine.listenUdp() costs no memory before a datagram comes", async () => {
  const engine = new DenoEngine(systemNetwork, systemClock);
  const before = Deno.memoryUsage().rss;
  const sockets = Array.from(
    { length: 500 },
    () => engine.listenUdp({ hostname: "127.0.0.1", port: 0 }),
  );
  const served = sockets.map((socket) => socket.serve({ take() {} }));
  const grown = Deno.memoryUsage().rss - before;
  for (const socket of sockets) socket.close();
  await Promise.all(served);
  assertEquals(grown < 16 * 1024 * 1024, true, `grew by ${grown} bytes`);
});

type Side = "client" | "endpoint";

/** Sends from one side until the other one, which reads nothing, takes no more. */
async function fill({ user, ...ends }: Relayed, from: Side): Promise<void> {
  const data = new Uint8Array(MEGABYTE);
  void (async () => {
    for (;;) await ends[from].write(data);
  })().catch(() => {});
  let [activity, unchanged] = [-1, 0];
  await eventually("nothing more fits", () => {
    unchanged = user.activity > 0 && user.activity === activity ? unchanged + 1 : 0;
    activity = user.activity;
    return unchanged === 20;
  });
}

for (const [gone, other] of [["client", "endpoint"], ["endpoint", "client"]] as const) {
  for (
    const [name, prepare] of [
      [`while its ${other} reads nothing`, fill],
      ["after the end of its stream", async (relay: Relayed) => {
        await relay[gone].closeWrite();
        await readToEnd(relay[other]);
      }],
    ] as const
  ) {
    test(`Relay.closeIfGone() closes the connections of the ${gone} that has reset its connection ${name}`, async (relayed) => {
      const relay = await relayed();
      using _other = relay[other];
      await writeFully(relay[other], pattern(100));
      await prepare(relay, gone);
      // Closed with data that it has not read, a socket is reset.
      relay[gone].close();
      assertEquals(relay.user.closed, false);
      await eventually(`the ${gone} is found gone`, async () => {
        await relay.relay.closeIfGone();
        return relay.user.closed;
      });
      await assertGone(relay);
    });
  }
}

for (
  const [name, prepare] of [
    ["whose sides are silent", () => {}],
    ["whose endpoint reads nothing", (relay: Relayed) => fill(relay, "client")],
    ["whose client reads nothing", (relay: Relayed) => fill(relay, "endpoint")],
    ["whose sides read nothing", async (relay: Relayed) => {
      await fill(relay, "client");
      await fill(relay, "endpoint");
    }],
    ["whose client has ended its stream", ({ client }: Relayed) => client.closeWrite()],
    ["whose endpoint has ended its stream and reads nothing", async (relay: Relayed) => {
      await relay.endpoint.closeWrite();
      await readToEnd(relay.client);
      await fill(relay, "client");
    }],
    ["whose client has ended its stream and reads nothing", async (relay: Relayed) => {
      await relay.client.closeWrite();
      await readToEnd(relay.endpoint);
      await fill(relay, "endpoint");
    }],
  ] as const
) {
  test(`Relay.closeIfGone() leaves connections alone ${name}`, async (relayed) => {
    const relay = await relayed();
    const { client, endpoint, user } = relay;
    using _client = client;
    using _endpoint = endpoint;
    await prepare(relay);
    for (let count = 0; count < 3; count++) await relay.relay.closeIfGone();
    assertEquals(user.closed, false);
    user.close();
    await assertGone(relay);
  });
}
