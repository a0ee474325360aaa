import { assertEquals, assertRejects } from "@std/assert";
import { systemNetwork } from "./network.ts";

const LOOPBACK = "127.0.0.1";

/** A port that is unused. */
function freePort(): number {
  const listener = systemNetwork.listenTcp({ hostname: LOOPBACK, port: 0 });
  listener.close();
  return listener.addr.port;
}

Deno.test("tryConnectTcp() connects from the address and port that the caller names", async () => {
  const listener = systemNetwork.listenTcp({ hostname: LOOPBACK, port: 0 });
  const from = { hostname: "127.0.0.9", port: freePort() };
  const accepted = listener.accept();
  const { signal } = new AbortController();
  await systemNetwork.tryConnectTcp(listener.addr, { from, signal });
  const connection = await accepted;
  const { hostname, port } = connection.remoteAddr;
  connection.close();
  listener.close();
  assertEquals({ hostname, port }, from);
});

Deno.test("tryConnectTcp() rejects with the system's error, or with the signal's reason", async () => {
  const from = { hostname: LOOPBACK, port: freePort() };
  const address = { hostname: LOOPBACK, port: freePort() };
  const { signal } = new AbortController();
  const error = await assertRejects(() => systemNetwork.tryConnectTcp(address, { from, signal }));
  assertEquals((error as { code?: string }).code, "ECONNREFUSED");
  const gone = AbortSignal.abort(new Error("too late"));
  await assertRejects(
    () => systemNetwork.tryConnectTcp(address, { from, signal: gone }),
    Error,
    "too late",
  );
});
