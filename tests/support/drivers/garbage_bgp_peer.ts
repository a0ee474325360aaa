// deno-lint-ignore-file no-console
/**
 * BGP peers that break the protocol, each in its own way. Arguments: their addresses, nine. Prints a line
 * when all listen, and the kind of garbage after each connection.
 */
const MARKER = new Array(16).fill(0xff);

function message(type: number, body: readonly number[]): Uint8Array {
  const length = 19 + body.length;
  return new Uint8Array([...MARKER, length >> 8, length & 255, type, ...body]);
}

/** Version 4, AS 64513, hold time 90. */
const OPEN = message(1, [4, 0xfc, 0x01, 0, 90, 192, 0, 2, 2, 0]);
const KEEPALIVE = message(4, []);
const text = (words: string) => [...new TextEncoder().encode(words)];
const SHUTDOWN = text('\x1b[2J\x07<script>alert(1)</script>\n1006-    Routes: 9 exported\u202e"');

/** Sent one after the other in one connection. */
const KINDS: Readonly<Record<string, readonly Uint8Array[]>> = {
  noise: [crypto.getRandomValues(new Uint8Array(4096))],
  "length 0": [new Uint8Array([...MARKER, 0, 0, 1])],
  "length 65535": [new Uint8Array([...MARKER, 255, 255, 2]), new Uint8Array(60_000)],
  "type 99": [OPEN, KEEPALIVE, message(99, [1, 2, 3])],
  "update without end": [OPEN, KEEPALIVE, message(2, [255, 255, 1, 2, 3])],
  "attribute without end": [OPEN, KEEPALIVE, message(2, [0, 0, 0, 4, 0x40, 2, 255, 1])],
  "prefix of 255 bits": [OPEN, KEEPALIVE, message(2, [0, 0, 0, 0, 255, 10, 1, 2, 3])],
  shutdown: [OPEN, KEEPALIVE, message(3, [6, 2, SHUTDOWN.length, ...SHUTDOWN])],
  "open twice": [OPEN, KEEPALIVE, OPEN],
};

/** Sends one kind in each connection. */
async function serve(hostname: string, kind: string): Promise<void> {
  for await (const connection of Deno.listen({ hostname, port: 179 })) {
    try {
      for (const part of KINDS[kind]!) {
        await connection.write(part);
        // Each message is an answer to one of the other end.
        await connection.read(new Uint8Array(4096));
      }
      connection.close();
    } catch {
      // The other end has closed it.
    }
    console.log(kind);
  }
}

const serving = Deno.args.map((address, index) => serve(address, Object.keys(KINDS)[index]!));
console.log("listening");
await Promise.all(serving);
