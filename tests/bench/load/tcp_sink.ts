// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * Reads a number of bytes from `host port`, then prints the seconds.
 *
 * @module
 */
const [hostname = "", port = "", bytes = ""] = Deno.args;
const connection = await Deno.connect({ hostname, port: Number(port) });
const buffer = new Uint8Array(1 << 20);
const started = performance.now();
let left = Number(bytes);
while (left > 0) {
  const count = await connection.read(buffer);
  if (count === null) throw new Error(`The connection ended ${left} bytes early`);
  left -= count;
}
console.log((performance.now() - started) / 1000);
connection.close();
