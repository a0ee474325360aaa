/**
 * A program: a server that tells who it is and whom it saw. It listens with TCP and UDP on each
 * `address port` pair of its arguments, after its name.
 *
 *   deno run … echo_server.ts pod-1 10.180.0.1 8080 fd00:10::a01 8080
 *
 * Over TCP it first sends one line, {@linkcode EchoGreeting} as JSON, then everything that it gets,
 * until the client has sent its FIN; then it sends its own. A datagram is answered by one that holds
 * such a line and after it the datagram. It prints `ready`, and ends when its standard input does.
 *
 * @module
 */

/** The greeting of an echo server, with its name and its client's address. */
export interface EchoGreeting {
  readonly name: string;
  /** The peer's address and port, as the server saw them. */
  readonly peer: string;
  readonly peerPort: number;
  /** The address and port that the client reached it at. */
  readonly local: string;
  readonly localPort: number;
}

function greeting(name: string, peer: Deno.NetAddr, local: Deno.NetAddr): string {
  const said: EchoGreeting = {
    name,
    peer: peer.hostname,
    peerPort: peer.port,
    local: local.hostname,
    localPort: local.port,
  };
  return `${JSON.stringify(said)}\n`;
}

async function writeAll(conn: Deno.Conn, data: Uint8Array): Promise<void> {
  for (let sent = 0; sent < data.length;) sent += await conn.write(data.subarray(sent));
}

async function serveConnection(conn: Deno.TcpConn, name: string): Promise<void> {
  const buffer = new Uint8Array(65_536);
  try {
    await writeAll(conn, new TextEncoder().encode(greeting(name, conn.remoteAddr, conn.localAddr)));
    for (let size; (size = await conn.read(buffer)) !== null;) {
      await writeAll(conn, buffer.subarray(0, size));
    }
  } catch {
    // The client has gone.
  } finally {
    conn.close();
  }
}

async function serveTcp(listener: Deno.TcpListener, name: string): Promise<void> {
  for await (const conn of listener) void serveConnection(conn, name);
}

async function serveUdp(socket: Deno.DatagramConn, name: string): Promise<void> {
  const buffer = new Uint8Array(65_535);
  for (;;) {
    const [data, from] = await socket.receive(buffer);
    const peer = from as Deno.NetAddr;
    const head = new TextEncoder().encode(greeting(name, peer, socket.addr as Deno.NetAddr));
    const answer = new Uint8Array(head.length + data.length);
    answer.set(head);
    answer.set(data, head.length);
    // A client that has gone must not end the server.
    await socket.send(answer, peer).catch(() => {});
  }
}

/** The kernel takes a moment until a new IPv6 address, even one of `lo`, is no longer tentative. */
async function whenAssigned<T>(listen: () => T): Promise<T> {
  for (let left = 200;; left--) {
    try {
      return listen();
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrNotAvailable) || left === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
}

if (import.meta.main) {
  const [name = "", ...places] = Deno.args;
  for (let i = 0; i < places.length; i += 2) {
    const address = { hostname: places[i] ?? "", port: Number(places[i + 1]) };
    void serveTcp(await whenAssigned(() => Deno.listen(address)), name);
    void serveUdp(Deno.listenDatagram({ transport: "udp", ...address }), name);
  }
  // deno-lint-ignore no-console -- the line that its starter waits for
  console.log("ready");
  for await (const _ of Deno.stdin.readable);
  Deno.exit(0);
}
