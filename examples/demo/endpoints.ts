/**
 * The small servers that are the endpoints of the demo's Services, and their clients.
 *
 * @module
 */

/** A server that answers with its own name. */
export interface DemoServer {
  readonly name: string;
  readonly hostname: string;
  readonly port: number;
  close(): Promise<void>;
}

/** Starts an HTTP server that answers with its name; port 0 takes a free one. */
export function startHttpServer(name: string, hostname: string, port: number): DemoServer {
  const server = Deno.serve(
    { hostname, port, onListen: () => {} },
    () => new Response(`${name}\n`, { headers: { connection: "close" } }),
  );
  return { name, hostname, port: server.addr.port, close: () => server.shutdown() };
}

/** Starts a UDP server that answers each datagram with its name. */
export function startUdpServer(name: string, hostname: string, port: number): DemoServer {
  const socket = Deno.listenDatagram({ transport: "udp", hostname, port });
  const answer = (async () => {
    for await (const [, sender] of socket) {
      await socket.send(new TextEncoder().encode(name), sender);
    }
  })();
  return {
    name,
    hostname,
    port: (socket.addr as Deno.NetAddr).port,
    async close() {
      socket.close();
      await answer.catch(() => {});
    },
  };
}

/** Sends one HTTP request on a new connection; resolves to the name of the server. */
export async function askHttp(hostname: string, port: number): Promise<string> {
  const connection = await Deno.connect({ hostname, port });
  try {
    const request = `GET / HTTP/1.1\r\nHost: ${hostname}\r\nConnection: close\r\n\r\n`;
    await connection.write(new TextEncoder().encode(request));
    const text = await new Response(connection.readable).text();
    const [head, body] = text.split("\r\n\r\n");
    if (!head?.startsWith("HTTP/1.1 200") || body === undefined) {
      throw new Error(
        `Unexpected answer '${head?.split("\r\n")[0] ?? ""}' from ${hostname}:${port}`,
      );
    }
    return body.trim();
  } finally {
    try {
      connection.close();
    } catch {
      // Reading to the end already closed it.
    }
  }
}

/** Sends one datagram from a new port; resolves to the name of the server, rejects after two seconds. */
export async function askUdp(hostname: string, port: number): Promise<string> {
  const socket = Deno.listenDatagram({ transport: "udp", hostname: "127.0.0.1", port: 0 });
  const timer = setTimeout(() => socket.close(), 2000);
  try {
    await socket.send(new TextEncoder().encode("who is there?"), {
      transport: "udp",
      hostname,
      port,
    });
    const [answer] = await socket.receive();
    return new TextDecoder().decode(answer);
  } finally {
    clearTimeout(timer);
    try {
      socket.close();
    } catch {
      // The timer closed it.
    }
  }
}

/** Returns a port that is free on all of these addresses, for TCP or UDP. */
export function findFreePort(hostnames: readonly string[], transport: "tcp" | "udp"): number {
  const listen = (hostname: string, port: number): Deno.Listener | Deno.DatagramConn =>
    transport === "tcp"
      ? Deno.listen({ hostname, port })
      : Deno.listenDatagram({ transport: "udp", hostname, port });
  for (let attempt = 0; attempt < 50; attempt++) {
    const open: (Deno.Listener | Deno.DatagramConn)[] = [];
    try {
      const [first = "127.0.0.1", ...others] = hostnames;
      open.push(listen(first, 0));
      const { port } = open[0]!.addr as Deno.NetAddr;
      for (const hostname of others) open.push(listen(hostname, port));
      return port;
    } catch (error) {
      if (!(error instanceof Deno.errors.AddrInUse)) throw error;
    } finally {
      for (const socket of open) socket.close();
    }
  }
  throw new Error(`Cannot find a ${transport} port that is free on ${hostnames.join(", ")}`);
}
