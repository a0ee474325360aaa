// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * A UDP server that sends each datagram back. Prints its port.
 *
 * @module
 */
const socket = Deno.listenDatagram({ transport: "udp", hostname: "127.0.0.1", port: 0 });
console.log((socket.addr as Deno.NetAddr).port);
const buffer = new Uint8Array(65_535);
for (;;) {
  const [data, sender] = await socket.receive(buffer);
  await socket.send(data, sender);
}
