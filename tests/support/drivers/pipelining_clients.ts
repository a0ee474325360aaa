/**
 * A program: clients of an HTTP server that send many requests at once, read what comes, and connect
 * again when they are closed. Its arguments are the number of clients, the requests that each sends at
 * once, the port on 127.0.0.1, and paths. Prints a line when all have connected once, and one with the
 * number of bytes that came once its input has ended.
 *
 * @module
 */

async function ask(port: number, text: Uint8Array, onBytes: (count: number) => void) {
  using connection = await Deno.connect({ hostname: "127.0.0.1", port });
  const buffer = new Uint8Array(65_536);
  const writing = (async () => {
    for (let sent = 0; sent < text.length;) sent += await connection.write(text.subarray(sent));
  })();
  for (let count; (count = await connection.read(buffer)) !== null;) onBytes(count);
  await writing;
}

if (import.meta.main) {
  const [clients, requests, port, ...paths] = Deno.args;
  let bytes = 0;
  let isEnding = false;
  const client = async (path: string, onFirst: () => void) => {
    const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`.repeat(Number(requests));
    const text = new TextEncoder().encode(request);
    for (let turn = 0; !isEnding; turn++) {
      await ask(Number(port), text, (count) => bytes += count).catch(() => {});
      if (turn === 0) onFirst();
    }
  };
  const first = Array.from({ length: Number(clients) }, (_, index) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    void client(paths[index % paths.length]!, resolve);
    return promise;
  });
  const print = (text: string) => Deno.stdout.write(new TextEncoder().encode(`${text}\n`));
  await Promise.race(first);
  await print("asking");
  for await (const _ of Deno.stdin.readable);
  isEnding = true;
  await print(String(bytes));
  Deno.exit(0);
}
