import { assertEquals } from "@std/assert";
import { tryParseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import { systemNetwork } from "../../../lib/os/network.ts";
import { readToEnd, TcpServer, writeFully } from "../../../tests/support/drivers/tcp_peers.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { FakeNetwork } from "../../../tests/support/fakes/fake_network.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { DenoEngine } from "../engine.ts";
import type { CheckTarget, HttpCheck } from "./health_settings.ts";
import { probeEndpoint, type ProbeResult } from "./probe_endpoint.ts";

const HTTP: HttpCheck = { path: "/ready?x=1", host: "app", statuses: [{ from: 200, to: 399 }] };

function targetOf(port: number, more: Partial<CheckTarget> = {}): CheckTarget {
  return {
    ...{ namespace: "ns", address: tryParseIpAddress("127.0.0.1")!, port: parsePort(port) },
    ...{ intervalMs: 1000, timeoutMs: 60_000, rise: 1, fall: 1, ...more },
  };
}

function probe(
  target: CheckTarget,
  folders: readonly string[] = [],
  signal = new AbortController().signal,
): Promise<ProbeResult> {
  const context = new DenoEngine(systemNetwork, systemClock, folders);
  return probeEndpoint(context, target, signal);
}

/** A server that answers a request with a text, in pieces, and records the request. */
function answering(...pieces: readonly string[]): { server: TcpServer; requests: string[] } {
  const requests: string[] = [];
  const server = TcpServer.start(async (connection) => {
    const buffer = new Uint8Array(4096);
    const count = await connection.read(buffer) ?? 0;
    requests.push(new TextDecoder().decode(buffer.subarray(0, count)));
    for (const piece of pieces) await writeFully(connection, new TextEncoder().encode(piece));
  });
  return { server, requests };
}

Deno.test("probeEndpoint() passes an endpoint that accepts a connection, and closes it", async () => {
  let received = -1;
  await using server = TcpServer.start(async (connection) => {
    received = (await readToEnd(connection)).bytes;
  });
  assertEquals(await probe(targetOf(server.port)), { kind: "passed" });
  await eventually("the server sees the end of the stream", () => received === 0);
});

Deno.test("probeEndpoint() names why no connection is made", async () => {
  assertEquals(await probe(targetOf(unusedPort())), {
    kind: "failed",
    reason: "connection refused",
  });
  const network = new FakeNetwork();
  network.answers.set("127.0.0.1:80", "hang");
  network.answers.set("127.0.0.1:81", "out-of-sockets");
  const context = new DenoEngine(network, systemClock);
  const target = targetOf(80, { timeoutMs: 250 });
  const hanging = await probeEndpoint(context, target, AbortSignal.timeout(1));
  assertEquals(hanging, { kind: "timeout", reason: "no connection within 250ms" });
  const own = await probeEndpoint(context, targetOf(81), AbortSignal.timeout(1));
  assertEquals(own, { kind: "unknown" });
});

Deno.test("probeEndpoint() sends one request and judges the status alone", async () => {
  for (
    const [answer, expected] of [
      [["HTTP/1.1 200 OK\r\n\r\n"], undefined],
      [["HT", "TP/1.0 399\r", "\n"], undefined],
      [["HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n"], undefined],
      [["HTTP/1.1 503 Busy\r\n\r\n"], "503 instead of 200-399"],
      [["HTTP/1.1 199 What\r\n\r\n"], "199 instead of 200-399"],
      [[], "closed without an answer"],
      [["SSH-2.0-OpenSSH\r\n"], "the answer is not HTTP/1"],
      [["HTTP/1.1 200"], "the answer is not HTTP/1"],
      [["HTTP/1.1 200 " + "x".repeat(100_000)], undefined],
      [["x".repeat(100_000)], "the answer is not HTTP/1"],
    ] as const
  ) {
    const { server, requests } = answering(...answer);
    await using _ = server;
    const result = await probe(targetOf(server.port, { http: HTTP }));
    const reason = result.kind === "failed" ? result.reason : undefined;
    assertEquals([result.kind, reason], [expected ? "failed" : "passed", expected], answer[0]);
    assertEquals(requests, [
      "GET /ready?x=1 HTTP/1.1\r\nHost: app\r\nUser-Agent: kube-relay\r\nAccept: */*\r\n" +
      "Connection: close\r\n\r\n",
    ]);
  }
});

Deno.test("probeEndpoint() fails when no answer comes in time, and closes the connection", async () => {
  let ended = false;
  const timeout = new AbortController();
  await using server = TcpServer.start(async (connection) => {
    await connection.read(new Uint8Array(4096));
    timeout.abort();
    await readToEnd(connection).catch(() => {});
    ended = true;
  });
  const target = targetOf(server.port, { http: HTTP, timeoutMs: 250 });
  const result = await probe(target, [], timeout.signal);
  assertEquals(result, { kind: "timeout", reason: "no answer within 250ms" });
  await eventually("the server sees the end of the stream", () => ended);
});

Deno.test("probeEndpoint() begins with the PROXY header that the endpoint expects", async () => {
  for (const [version, start] of [["v1", "PROXY UNKNOWN\r\nGET "], ["v2", "\r\n\r\n\0"]] as const) {
    const { server, requests } = answering("HTTP/1.1 200 OK\r\n\r\n");
    await using _ = server;
    const http = { ...HTTP, proxy: version };
    assertEquals((await probe(targetOf(server.port, { http }))).kind, "passed");
    assertEquals(requests[0]?.slice(0, start.length), start);
  }
});

Deno.test("probeEndpoint() connects to a Unix socket, in the folders alone", async () => {
  await withFolder(async (folder) => {
    const socket = `${folder}/app.sock`;
    const target = targetOf(1, { socket });
    assertEquals(await probe(target, [folder]), {
      kind: "failed",
      reason: "the Unix socket does not exist",
    });
    using listener = Deno.listen({ transport: "unix", path: socket });
    const accepted = listener.accept();
    assertEquals(await probe(target, [folder]), { kind: "passed" });
    (await accepted).close();
    const elsewhere = await probe(target, ["/nowhere"]);
    assertEquals(elsewhere.kind === "failed" && elsewhere.reason.includes("is in no folder"), true);
  });
});
