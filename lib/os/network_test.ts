import { assert, assertEquals, assertRejects } from "@std/assert";
import { TcpServer } from "../../tests/support/drivers/tcp_peers.ts";
import { unusedPort } from "../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../tests/support/eventually.ts";
import { systemNetwork } from "./network.ts";

const LOOPBACK = "127.0.0.1";

Deno.test("tryConnectTcp() connects from the address and port that the caller names", async () => {
  const listener = systemNetwork.listenTcp({ hostname: LOOPBACK, port: 0 });
  const from = { hostname: "127.0.0.9", port: unusedPort() };
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
  const from = { hostname: LOOPBACK, port: unusedPort() };
  const address = { hostname: LOOPBACK, port: unusedPort() };
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

Deno.test("connectTcp() loses no connection that is made while the signal is aborted", async () => {
  await using server = TcpServer.named("a");
  const outcomes = { made: 0, aborted: 0 };
  // One after the other: on a busy machine all of one turn are made before an abort can meet any.
  const connectUntil = async (signal: AbortSignal) => {
    const at = { hostname: LOOPBACK, port: server.port };
    try {
      for (;; outcomes.made++) (await systemNetwork.connectTcp(at, signal)).close();
    } catch (error) {
      assertEquals(error, signal.reason);
      outcomes.aborted++;
    }
  };
  for (let round = 0; round < 40; round++) {
    const stop = new AbortController();
    const connecting = Array.from({ length: 50 }, () => connectUntil(stop.signal));
    setTimeout(() => stop.abort(new Error("too late")), 1 + round % 2);
    await Promise.all(connecting);
  }
  // Some 100 stay open if Deno.connect() asks the signal once more at the end.
  await eventually("all connections are closed", () => server.accepted > 0 && server.open === 0);
  assert(outcomes.made > 0 && outcomes.aborted > 0, JSON.stringify(outcomes));
});

Deno.test("connectTcp() rejects with the signal's reason", async () => {
  const listener = systemNetwork.listenTcp({ hostname: LOOPBACK, port: 0 });
  const stop = new AbortController();
  const connecting = systemNetwork.connectTcp(listener.addr, stop.signal);
  stop.abort(new Error("too late"));
  await assertRejects(() => connecting, Error, "too late");
  const again = () => systemNetwork.connectTcp(listener.addr, stop.signal);
  await assertRejects(again, Error, "too late");
  listener.close();
});
