import { assertEquals } from "@std/assert";
import { tryParseListenAddress } from "./listen_address.ts";

Deno.test("tryParseListenAddress() reads address and port, with the port given if there is none", () => {
  const cases: readonly [text: string, hostname: string, port: number][] = [
    ["0.0.0.0:10256", "0.0.0.0", 10256],
    ["[::]:1", "::", 1],
    ["127.0.0.1", "127.0.0.1", 7],
    ["::1", "::1", 7],
    ["010.0.0.1:65535", "10.0.0.1", 65535],
  ];
  for (const [text, hostname, port] of cases) {
    assertEquals(tryParseListenAddress(text, 7), { hostname, port }, text);
  }
});

Deno.test("tryParseListenAddress() accepts nothing else", () => {
  for (
    const text of [
      "",
      ":10256",
      "localhost:1",
      "0.0.0.0:0",
      "0.0.0.0:65536",
      "[::]",
      "::1:x",
      "1.2.3.4:",
    ]
  ) {
    assertEquals(tryParseListenAddress(text, 7), undefined, text);
  }
});
