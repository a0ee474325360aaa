// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * A UDP server that sends each datagram back. Prints its port, where checks of health may connect.
 *
 * @module
 */
// TCP chooses: thousands of its ports may still be held by connections of an earlier workload, none of UDP.
const listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
const { hostname, port } = listener.addr;
const socket = Deno.listenDatagram({ transport: "udp", hostname, port });
void (async () => {
  for await (const connection of listener) connection.close();
})();
console.log(port);
const buffer = new Uint8Array(65_535);
for (;;) {
  const [data, sender] = await socket.receive(buffer);
  await socket.send(data, sender);
}
