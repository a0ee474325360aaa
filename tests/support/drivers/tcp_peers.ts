/**
 * TCP servers and clients on loopback.
 *
 * @module
 */

/** A server that hands each connection to a function and closes it afterwards. */
export class TcpServer implements AsyncDisposable {
  readonly #listener: Deno.TcpListener;
  readonly #connections = new Set<Deno.TcpConn>();
  readonly #tasks: Promise<void>[] = [];
  accepted = 0;

  private constructor(listener: Deno.TcpListener) {
    this.#listener = listener;
  }

  static start(
    handle: (connection: Deno.TcpConn) => Promise<void>,
    { hostname = "127.0.0.1", port = 0 }: { hostname?: string; port?: number } = {},
  ): TcpServer {
    const server = new TcpServer(Deno.listen({ hostname, port }));
    server.#tasks.push(server.#accept(handle));
    return server;
  }

  /** A server that answers each line with its name, and ends when the client does. */
  static named(name: string, options?: { hostname?: string; port?: number }): TcpServer {
    return TcpServer.start(async (connection) => {
      const buffer = new Uint8Array(1024);
      while (await connection.read(buffer) !== null) {
        await connection.write(new TextEncoder().encode(name));
      }
    }, options);
  }

  get port(): number {
    return this.#listener.addr.port;
  }

  /** Connections that are open now. */
  get open(): number {
    return this.#connections.size;
  }

  /** `address:port`. */
  get endpoint(): string {
    return `${this.#listener.addr.hostname}:${this.port}`;
  }

  /** Accepts no more connections: clients are refused. Open ones stay. */
  stopListening(): void {
    try {
      this.#listener.close();
    } catch {
      // It was closed before.
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stopListening();
    for (const connection of this.#connections) close(connection);
    await Promise.all(this.#tasks);
  }

  async #accept(handle: (connection: Deno.TcpConn) => Promise<void>): Promise<void> {
    try {
      for (;;) {
        const connection = await this.#listener.accept();
        this.accepted++;
        this.#connections.add(connection);
        this.#tasks.push(this.#serve(connection, handle));
      }
    } catch {
      // The listener was closed.
    }
  }

  async #serve(
    connection: Deno.TcpConn,
    handle: (connection: Deno.TcpConn) => Promise<void>,
  ): Promise<void> {
    try {
      await handle(connection);
    } catch {
      // The client or the forwarder has gone.
    } finally {
      this.#connections.delete(connection);
      close(connection);
    }
  }
}

/** Everything until the end of the stream, as a number of bytes and as text. */
export async function readToEnd(
  connection: Deno.TcpConn,
): Promise<{ bytes: number; text: string }> {
  const buffer = new Uint8Array(65_536);
  const decoder = new TextDecoder();
  let bytes = 0;
  let text = "";
  for (let count; (count = await connection.read(buffer)) !== null;) {
    bytes += count;
    text += decoder.decode(buffer.subarray(0, count), { stream: true });
  }
  return { bytes, text };
}

/** Writes all of it. */
export async function writeFully(
  connection: Pick<Deno.Conn, "write">,
  data: Uint8Array,
): Promise<void> {
  for (let sent = 0; sent < data.length;) sent += await connection.write(data.subarray(sent));
}

/** Sends a line, ends the own stream, and returns the whole answer. */
export async function ask(address: { hostname: string; port: number }): Promise<string> {
  using connection = await Deno.connect(address);
  await writeFully(connection, new TextEncoder().encode("who?"));
  await connection.closeWrite();
  return (await readToEnd(connection)).text;
}

/** Whether what is sent comes back. */
export async function echoes(connection: Deno.TcpConn): Promise<boolean> {
  try {
    await connection.write(new TextEncoder().encode("x"));
    return await connection.read(new Uint8Array(9)) === 1;
  } catch {
    return false;
  }
}

/** Whether a connection is refused, as by a port on which nothing listens. */
export async function isRefused(address: { hostname: string; port: number }): Promise<boolean> {
  try {
    (await Deno.connect(address)).close();
    return false;
  } catch (error) {
    if (error instanceof Deno.errors.ConnectionRefused) return true;
    // The listener was closed with the connection in its queue: a later one is refused.
    if (error instanceof Deno.errors.ConnectionReset) return false;
    throw error;
  }
}

function close(connection: Deno.TcpConn): void {
  try {
    connection.close();
  } catch {
    // It was closed before.
  }
}
