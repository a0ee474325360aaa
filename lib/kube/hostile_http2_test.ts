import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import {
  createTestCertificateAuthority,
  type TestCertificate,
} from "../../tests/support/builders/test_certificates.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { StaticAuth } from "../../tests/support/builders/static_auth.ts";
import { openTransport } from "./api_transport.ts";
import { type HttpRequest, type HttpResponse, TransportError } from "./transport.ts";

const REQUEST: HttpRequest = {
  method: "GET",
  path: "/",
  headers: {},
  signal: new AbortController().signal,
};
const STREAMS = [1, 3, 5, 7];
const LARGEST_ID = 0x7fffffff;
const CANCEL = 8;

// Frames as in RFC 9113: a real server never sends them in these orders, a proxy in between may.
function frame(type: number, id: number, payload: readonly number[], flags = 0): number[] {
  return [0, 0, payload.length, type, flags, ...number32(id), ...payload];
}

function number32(value: number): number[] {
  return [value >>> 24, value >>> 16 & 255, value >>> 8 & 255, value & 255];
}

const settings = (flags = 0) => frame(4, 0, [], flags);
const goaway = (lastId: number, code = 0) => frame(7, 0, [...number32(lastId), ...number32(code)]);
const reset = (id: number, code: number) => frame(3, id, number32(code));
/** `:status: 200` from the static table, headers complete. */
const headers = (id: number) => frame(1, id, [0x88], 4);

const GOODBYES: Readonly<Record<string, readonly number[]>> = {
  "GOAWAY before every stream": goaway(0),
  "GOAWAY with an error": goaway(0, 2),
  "a GOAWAY that warns and one that ends": [...goaway(LARGEST_ID), ...goaway(0)],
  "one GOAWAY after the other": [7, 5, 3, 1, 0].flatMap((id) => goaway(id)),
  "resets of all streams and GOAWAY": [...STREAMS.flatMap((id) => reset(id, CANCEL)), ...goaway(0)],
  "resets of some streams and GOAWAY": [...reset(3, CANCEL), ...goaway(1), ...goaway(0)],
  "answers and GOAWAY": [...STREAMS.flatMap(headers), ...goaway(3), ...goaway(0)],
  "no frame at all": [],
};

/** A transport in front of a server that sends bytes after the requests, and the requests. */
async function withServer(
  bytes: Uint8Array,
  isEndless: boolean,
  test: (requests: readonly Promise<HttpResponse>[]) => Promise<void>,
): Promise<void> {
  const authority = await createTestCertificateAuthority();
  const leaf = await authority.issue({ commonName: "server", ipv4: ["127.0.0.1"] });
  const server = serveOnce(leaf, bytes, isEndless);
  const auth = new StaticAuth(`https://127.0.0.1:${server.port}`, { ca: authority.cert });
  // No time passes in which a server might send more.
  await using transport = openTransport(new FakeClock(), auth);
  await test(STREAMS.map(() => transport.request(REQUEST)));
  assertEquals(transport.connected, false);
  await transport[Symbol.asyncDispose]();
  await server.done;
}

for (const [name, bytes] of Object.entries(GOODBYES)) {
  Deno.test(`HTTP/2 transport ends every request when the server says goodbye with ${name}`, () =>
    withServer(new Uint8Array(bytes), false, async (requests) => {
      const results = await Promise.allSettled(
        requests.map(async (request) => await Array.fromAsync((await request).body)),
      );
      for (const result of results) {
        // A partial answer may look complete; only its content shows the difference.
        assert(result.status === "fulfilled" || result.reason instanceof TransportError);
      }
      if (name.startsWith("answers")) return;
      assertEquals(results.map(({ status }) => status), Array(4).fill("rejected"));
    }));
}

const FLOODS: Readonly<Record<string, readonly number[]>> = {
  "updates of the window": frame(8, 0, number32(1)),
  "updates of a stream's window": frame(8, 1, number32(1)),
  "frames of other protocols": frame(12, 0, []),
  "answers before the answer": frame(1, 1, [0x48, 3, ...new TextEncoder().encode("103")], 4),
};

for (const [name, bytes] of Object.entries(FLOODS)) {
  Deno.test(`HTTP/2 transport ends a connection that brings nothing but ${name}`, () =>
    withServer(new Uint8Array(Array(4096).fill(bytes).flat()), true, async (requests) => {
      const results = await Promise.allSettled(requests) as PromiseRejectedResult[];
      for (const { reason } of results) {
        assertStringIncludes(reason.message, "4194304 bytes besides answers");
      }
    }));
}

Deno.test("HTTP/2 transport keeps a connection that brings answers, however many bytes at once", async () => {
  const authority = await createTestCertificateAuthority();
  const leaf = await authority.issue({ commonName: "server", ipv4: ["127.0.0.1"] });
  const answer = new Uint8Array(5_000_000);
  const options = { hostname: "127.0.0.1", port: 0, ...leaf, onListen: () => {} };
  await using server = Deno.serve(options, () => new Response(answer));
  // No time passes in which the server might send anything besides.
  const auth = new StaticAuth(`https://127.0.0.1:${server.addr.port}`, { ca: authority.cert });
  await using transport = openTransport(new FakeClock(), auth);
  const responses = await Promise.all(
    STREAMS.map(() => transport.request(REQUEST)),
  );
  // Each waits for the ones before, as for a slow reader.
  for (const { body } of responses) {
    let length = 0;
    for await (const chunk of body) length += chunk.length;
    assertEquals(length, answer.length);
  }
});

Deno.test("HTTP/2 transport gives up connecting when it is disposed of meanwhile", async () => {
  using listener = Deno.listen({ hostname: "127.0.0.1", port: 0 });
  const accepted = listener.accept();
  const auth = new StaticAuth(`https://127.0.0.1:${listener.addr.port}`, { insecure: true });
  await using transport = openTransport(new FakeClock(), auth);
  const asking = transport.request(REQUEST);
  const connection = await accepted;
  await transport[Symbol.asyncDispose]();
  await assertRejects(() => asking, TransportError, "kube-relay stops");
  connection.close();
});

/**
 * Takes one connection, waits for the requests, sends the bytes, again and again if it is endless; ends
 * with the client, or at once without bytes.
 */
function serveOnce(leaf: TestCertificate, bytes: Uint8Array, isEndless: boolean) {
  const options = { hostname: "127.0.0.1", port: 0, ...leaf, alpnProtocols: ["h2"] };
  const listener = Deno.listenTls(options);
  const serve = async () => {
    using connection = await listener.accept();
    listener.close();
    await connection.handshake();
    await connection.write(new Uint8Array([...settings(), ...settings(1)]));
    let received: number[] = [];
    const buffer = new Uint8Array(4096);
    while (countRequests(received) < STREAMS.length) {
      const length = await connection.read(buffer);
      if (length === null) return;
      received = [...received, ...buffer.subarray(0, length)];
    }
    if (bytes.length === 0) return;
    await connection.write(bytes);
    // Also gets a broken pipe when the client has left.
    while (isEndless && await connection.write(bytes).catch(() => 0) > 0);
    while (await connection.read(buffer).catch(() => null) !== null);
  };
  return { port: listener.addr.port, done: serve() };
}

/** HEADERS frames after the client's preface. */
function countRequests(received: readonly number[]): number {
  const PREFACE_LENGTH = 24;
  let count = 0;
  for (let at = PREFACE_LENGTH; at + 9 <= received.length;) {
    if (received[at + 3] === 1) count++;
    at += 9 + (received[at]! << 16 | received[at + 1]! << 8 | received[at + 2]!);
  }
  return count;
}
