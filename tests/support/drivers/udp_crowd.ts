/**
 * A program: many UDP clients. Its arguments are how many, and the address and port that they send to.
 * For each line of its input, every client sends one datagram from its own socket; then it prints a
 * line.
 *
 * @module
 */

if (import.meta.main) {
  const [count, hostname, port] = Deno.args;
  const to = { transport: "udp", hostname: hostname!, port: Number(port) } as const;
  const any = hostname!.includes(":") ? "::" : "0.0.0.0";
  const sockets = Array.from(
    { length: Number(count) },
    () => Deno.listenDatagram({ transport: "udp", hostname: any, port: 0 }),
  );
  const datagram = new TextEncoder().encode("who?");
  for await (const _ of Deno.stdin.readable) {
    for (const socket of sockets) await socket.send(datagram, to);
    await Deno.stdout.write(new TextEncoder().encode("sent\n"));
  }
  Deno.exit(0);
}
