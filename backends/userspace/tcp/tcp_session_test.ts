import { assertEquals, assertRejects } from "@std/assert";
import type { TcpConnection } from "../../../lib/os/network.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { readToEnd, writeFully } from "../../../tests/support/drivers/tcp_peers.ts";
import { BufferPool } from "./buffer_pool.ts";
import { TcpSession, type TcpSessionOwner } from "./tcp_session.ts";

/** A pool that knows how many buffers are out. */
class CountingPool extends BufferPool {
  out = 0;
  taken = 0;

  override take(): Uint8Array {
    this.out++;
    this.taken++;
    return super.take();
  }

  override give(buffer: Uint8Array): void {
    this.out--;
    super.give(buffer);
  }
}

class Owner implements TcpSessionOwner {
  readonly smallBuffers = new CountingPool({ size: 64, keep: 8 });
  readonly largeBuffers = new CountingPool({ size: 4096, keep: 8 });
  readonly traffic = undefined;
  closed = 0;
  activity = 0;

  touch(): void {
    this.activity++;
  }

  onClosed(): void {
    this.closed++;
  }
}

/** Client and endpoint of a session, over real sockets. */
async function relayed(): Promise<Relayed> {
  const owner = new Owner();
  const [client, fromClient] = await connectedPair();
  const [toEndpoint, endpoint] = await connectedPair();
  const session = new TcpSession(owner, fromClient);
  return { owner, client, endpoint, session, done: session.relay(toEndpoint) };
}

interface Relayed {
  readonly owner: Owner;
  readonly client: Deno.TcpConn;
  readonly endpoint: Deno.TcpConn;
  readonly session: TcpSession;
  readonly done: Promise<void>;
}

async function connectedPair(): Promise<[Deno.TcpConn, Deno.TcpConn]> {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const { hostname, port } = listener.addr;
  return await Promise.all([Deno.connect({ hostname, port }), listener.accept()]);
}

/** The session is over, and nothing of it is left. */
async function assertGone({ owner, session, done }: Relayed): Promise<void> {
  await done;
  assertEquals(session.closed, true);
  assertEquals(owner.closed, 1);
  assertEquals([owner.smallBuffers.out, owner.largeBuffers.out], [0, 0]);
}

/** Bytes that are not alike, so that a lost or doubled piece is seen. */
function pattern(length: number): Uint8Array {
  return Uint8Array.from({ length }, (_, index) => 97 + index % 23);
}

const MEGABYTE = 1 << 20;

Deno.test("TcpSession.relay() copies 1 MB each way at once", async () => {
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
  Deno.test(`TcpSession.relay() continues one way after the ${first} has ended the other`, async () => {
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
  Deno.test(`TcpSession.relay() ends both sides when the ${breaker} resets`, async () => {
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

Deno.test("TcpSession.relay() ends when one side reads no more and the other writes on", async () => {
  const relay = await relayed();
  using endpoint = relay.endpoint;
  relay.client.close();
  await assertRejects(async () => {
    for (;;) await writeFully(endpoint, pattern(65_536));
  });
  await assertGone(relay);
});

Deno.test("TcpSession.close() ends a session in which nothing happens", async () => {
  const relay = await relayed();
  using client = relay.client;
  using endpoint = relay.endpoint;
  relay.session.close();
  relay.session.close();
  await assertGone(relay);
  assertEquals((await readToEnd(client)).bytes + (await readToEnd(endpoint)).bytes, 0);
});

Deno.test("TcpSession.close() ends a session whose peer does not read", async () => {
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
  relay.session.close();
  await assertGone(relay);
  await flood;
});

Deno.test("TcpSession.relay() closes the endpoint when the session was closed before", async () => {
  const owner = new Owner();
  const [client, fromClient] = await connectedPair();
  const [toEndpoint, endpoint] = await connectedPair();
  using _client = client;
  using _endpoint = endpoint;
  const session = new TcpSession(owner, fromClient);
  session.close();
  await session.relay(toEndpoint);
  assertEquals((await readToEnd(endpoint)).bytes, 0);
  assertEquals(owner.closed, 1);
});

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

Deno.test("TcpSession.relay() takes a large buffer when reads fill the small one, and gives it back", async () => {
  const owner = new Owner();
  const client = scripted([10, 64, 4096, 100, ...Array(17).fill(10)]);
  await new TcpSession(owner, client).relay(scripted([]));
  assertEquals(client.buffers, [64, 64, ...Array(18).fill(4096), 64, 64]);
  assertEquals([owner.smallBuffers.out, owner.largeBuffers.out], [0, 0]);
});

Deno.test("TcpSession.relay() reports activity for each read", async () => {
  const owner = new Owner();
  await new TcpSession(owner, scripted([10, 10])).relay(scripted([10]));
  assertEquals(owner.activity, 3);
});

type Side = "client" | "endpoint";

/** Sends from one side until the other one, which reads nothing, takes no more. */
async function fill({ owner, ...relay }: Relayed, from: Side): Promise<void> {
  const data = new Uint8Array(MEGABYTE);
  void (async () => {
    for (;;) await relay[from].write(data);
  })().catch(() => {});
  let [activity, unchanged] = [-1, 0];
  await eventually("nothing more fits", () => {
    unchanged = owner.activity > 0 && owner.activity === activity ? unchanged + 1 : 0;
    activity = owner.activity;
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
    Deno.test(`TcpSession.closeIfGone() closes the session of the ${gone} that has reset its connection ${name}`, async () => {
      const relay = await relayed();
      using _other = relay[other];
      await writeFully(relay[other], pattern(100));
      await prepare(relay, gone);
      // Closed with data that it has not read, a socket is reset.
      relay[gone].close();
      assertEquals(relay.session.closed, false);
      await eventually(`the ${gone} is found gone`, async () => {
        await relay.session.closeIfGone();
        return relay.session.closed;
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
  Deno.test(`TcpSession.closeIfGone() leaves a session alone ${name}`, async () => {
    const relay = await relayed();
    const { client, endpoint, session } = relay;
    using _client = client;
    using _endpoint = endpoint;
    await prepare(relay);
    for (let count = 0; count < 3; count++) await session.closeIfGone();
    assertEquals(session.closed, false);
    session.close();
    await assertGone(relay);
  });
}
