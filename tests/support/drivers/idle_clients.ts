/**
 * A program: opens connections and says nothing on them or, on every second one, a request that never
 * ends, byte by byte. Its arguments are how many to each, and the addresses, as `ADDRESS PORT` pairs.
 * Prints a line once all are open, and ends with its input.
 *
 * @module
 */

const BYTE_EVERY_MS = 1_000;

if (import.meta.main) {
  const [count, ...places] = Deno.args;
  const connections: Deno.TcpConn[] = [];
  for (let at = 0; at < places.length; at += 2) {
    const address = { hostname: places[at]!, port: Number(places[at + 1]) };
    for (let made = 0; made < Number(count); made++) connections.push(await Deno.connect(address));
  }
  const say = (text: string) =>
    connections.forEach((connection, at) => {
      // One that the server has closed takes nothing more.
      if (at % 2 === 1) connection.write(new TextEncoder().encode(text)).catch(() => {});
    });
  say("GET /livez HTTP/1.1\r\nx: ");
  setInterval(() => say("a"), BYTE_EVERY_MS);
  await Deno.stdout.write(new TextEncoder().encode("open\n"));
  for await (const _ of Deno.stdin.readable);
  Deno.exit(0);
}
