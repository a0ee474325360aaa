import { assertEquals } from "@std/assert";
import { isMissing } from "../../tests/support/requirement.ts";
import { listenHttp } from "../../tests/support/listen_http.ts";
import { systemNetwork } from "./network.ts";
import { probeWildcard } from "./wildcard.ts";

const LOOPBACK = { hostname: "127.0.0.1", port: 0 };

Deno.test("listenHttp() gives the port back once close() has resolved, whoever is connected", async () => {
  const first = listenHttp(LOOPBACK, () => new Response("first"));
  const { port } = first.address;
  // fetch() keeps the connection open for the next request.
  assertEquals(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "first");
  await first.close();
  const second = listenHttp({ ...LOOPBACK, port }, () => new Response("second"));
  assertEquals(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "second");
  await second.close();
  await second.finished;
});

Deno.test("listenHttp() answers a fault of the handler with 500", async () => {
  const listener = listenHttp(LOOPBACK, () => Promise.reject(new Error("a fault")));
  const response = await fetch(`http://127.0.0.1:${listener.address.port}/`);
  assertEquals([response.status, await response.text()], [500, "500 internal server error\n"]);
  await listener.close();
});

Deno.test("listenHttp() answers whatever the Host header says, but for what Go refuses", async (t) => {
  const listener = listenHttp(
    LOOPBACK,
    async (request) => {
      const { hostname, pathname } = new URL(request.url);
      // What only this machine may ask for is told by that name.
      return new Response(`${pathname} ${await request.text()} ${hostname === "localhost"}`);
    },
  );
  const hosts: readonly (readonly [host: string, status: number])[] = [
    ["[fe80::1%25eth0]:10256", 200],
    ["[fe80::1%eth0]", 200],
    ["10.0.0.256", 200],
    ["web:99999", 200],
    ["a b", 400],
    ["<a>", 400],
  ];
  for (const [host, status] of hosts) {
    await t.step(host, async () => {
      using connection = await Deno.connect(listener.address);
      const text = `PUT /livez HTTP/1.1\r\nHost: ${host}\r\n` +
        "Content-Length: 2\r\nConnection: close\r\n\r\nhi";
      await connection.write(new TextEncoder().encode(text));
      const answer = await new Response(connection.readable).text();
      assertEquals(answer.split(" ")[1], String(status));
      assertEquals(answer.endsWith("\r\n\r\n/livez hi false"), status === 200);
    });
  }
  await listener.close();
});

Deno.test({
  name: "listenHttp() names an IPv4 client of [::] by its IPv4 address",
  ignore: isMissing("listenHttp() on [::]", [[
    "an IPv6 socket that takes IPv4",
    probeWildcard(systemNetwork) === "both",
  ]]),
  async fn() {
    const listener = listenHttp({ hostname: "::", port: 0 }, (_, peer) => new Response(peer));
    const response = await fetch(`http://127.0.0.1:${listener.address.port}/`);
    assertEquals(await response.text(), "127.0.0.1");
    await listener.close();
  },
});
