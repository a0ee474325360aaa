/** A server of HTTP on a real socket with a clock that a test moves, and its clients. */
import { assertEquals } from "@std/assert";
import type { HttpHandler } from "../../../lib/os/http_connection.ts";
import { HttpConnections, type HttpConnectionsOptions } from "../../../lib/os/http_server.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import { FakeClock } from "../fakes/fake_clock.ts";
import { MemoryLogger } from "../fakes/memory_logger.ts";
import { writeFully } from "../drivers/tcp_peers.ts";

/** A whole request. */
export const GET = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/** A server, and the requests of a test. */
export interface HttpStage extends AsyncDisposable {
  readonly clock: FakeClock;
  readonly logger: MemoryLogger;
  /** Connections that were refused, or closed for new ones. */
  readonly refused: () => number;
  /** A client that sends a text, or nothing. */
  readonly connect: (text?: string) => Promise<Deno.TcpConn>;
}

/** Starts it. Disposing of it closes it and its clients. */
export function startHttpStage(
  handler: HttpHandler,
  options: Partial<HttpConnectionsOptions> = {},
): HttpStage {
  const clock = new FakeClock();
  const logger = new MemoryLogger();
  let refused = 0;
  const connections = new HttpConnections({ clock, logger }, {
    name: "test",
    onRefused: () => void refused++,
    ...options,
  });
  const socket = systemNetwork.listenTcp({ hostname: "127.0.0.1", port: 0 });
  const address = socket.addr as Deno.NetAddr;
  const listener = connections.serve(socket, handler);
  const clients: Deno.TcpConn[] = [];
  return {
    clock,
    logger,
    refused: () => refused,
    async connect(text = ""): Promise<Deno.TcpConn> {
      const client = await Deno.connect({ hostname: "127.0.0.1", port: address.port });
      clients.push(client);
      await write(client, text);
      return client;
    },
    async [Symbol.asyncDispose]() {
      await listener.close();
      for (const client of clients) client.close();
      assertEquals(clock.pendingTimers, 0);
    },
  };
}

/** Sends a text. */
export async function write(client: Deno.TcpConn, text: string): Promise<void> {
  await writeFully(client, new TextEncoder().encode(text));
}

/** Returns the received text as soon as there is some. */
export async function read(client: Deno.TcpConn): Promise<string> {
  const buffer = new Uint8Array(65_536);
  const count = await client.read(buffer).catch(() => null);
  return count === null ? "(closed)" : new TextDecoder().decode(buffer.subarray(0, count));
}
