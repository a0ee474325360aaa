/**
 * Opens connections one after the other, 16 at a time. Each sends a ClientHello and reads until the server
 * closes. Prints `{"connections":…,"seconds":…}`.
 *
 * Arguments: host, port, seconds.
 */
import { testClientHello } from "../../support/builders/client_hello.ts";

const [hostname = "", port = "", duration = ""] = Deno.args;
// As long as that of a browser with a post-quantum key.
const hello = testClientHello({
  names: ["shop.example.com"],
  extensions: [[0x0a0a, [0]], [51, Array(1216).fill(5)], [0xfe0d, Array(200).fill(9)]],
});
const begun = performance.now();
const end = begun + Number(duration) * 1000;
let connections = 0;

async function work(): Promise<void> {
  const buffer = new Uint8Array(4096);
  while (performance.now() < end) {
    using connection = await Deno.connect({ hostname, port: Number(port) });
    for (let sent = 0; sent < hello.length;) sent += await connection.write(hello.subarray(sent));
    let bytes = 0;
    for (let count; (count = await connection.read(buffer)) !== null;) bytes += count;
    if (bytes === 0) throw new Error("A connection was closed without an answer");
    connections++;
  }
}

await Promise.all(Array.from({ length: 16 }, work));
const seconds = (performance.now() - begun) / 1000;
// deno-lint-ignore no-console -- the program that starts it reads this
console.log(JSON.stringify({ connections, seconds }));
