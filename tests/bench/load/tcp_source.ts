// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * A TCP server that sends zeros for as long as the client reads. Argument: its address. Prints its port.
 *
 * @module
 */
const listener = Deno.listen({ hostname: Deno.args[0] ?? "127.0.0.1", port: 0 });
console.log(listener.addr.port);
const block = new Uint8Array(1 << 20);
for (;;) {
  // A client that has gone already makes accept() fail, with nothing wrong with the listener.
  const connection = await listener.accept().catch(() => undefined);
  if (connection) void send(connection);
}

async function send(connection: Deno.TcpConn): Promise<void> {
  try {
    for (;;) await connection.write(block);
  } catch {
    connection.close();
  }
}
