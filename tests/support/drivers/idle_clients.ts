/**
 * A program: opens connections and says nothing on them. Its arguments are how many to each, and the
 * addresses, as `ADDRESS PORT` pairs. Prints a line once all are open, and ends with its input.
 *
 * @module
 */

if (import.meta.main) {
  const [count, ...places] = Deno.args;
  const connections: Deno.TcpConn[] = [];
  for (let at = 0; at < places.length; at += 2) {
    const address = { hostname: places[at]!, port: Number(places[at + 1]) };
    for (let made = 0; made < Number(count); made++) connections.push(await Deno.connect(address));
  }
  await Deno.stdout.write(new TextEncoder().encode("open\n"));
  for await (const _ of Deno.stdin.readable);
  Deno.exit(0);
}
