import { assertEquals, assertRejects } from "@std/assert";
import { StaticAuth } from "../../tests/support/builders/static_auth.ts";
import {
  envelope,
  message,
  protobufEvent,
  protobufList,
  protobufService,
} from "../../tests/support/builders/protobuf_objects.ts";
import { systemClock } from "../os/clock.ts";
import { ApiError } from "./api_error.ts";
import { KubeClient } from "./client.ts";
import type { HttpRequest } from "./transport.ts";
import { metadataOf } from "./slim.ts";

const signal = new AbortController().signal;
const SERVICES = "/api/v1/services";
const PROTOBUF = "application/vnd.kubernetes.protobuf";

/** A client of a server that gives these answers, and the media types that it asks for. */
function answering(...answers: { status: number; contentType: string; body: Uint8Array }[]) {
  const accepted: (string | undefined)[] = [];
  const transport = {
    request: ({ headers }: HttpRequest) => {
      accepted.push(headers.accept);
      const { status, contentType, body } = answers.shift()!;
      async function* pieces(): AsyncGenerator<Uint8Array, undefined> {
        yield body;
        return undefined;
      }
      return Promise.resolve({ status, contentType, retryAfter: undefined, body: pieces() });
    },
    connected: true,
    lastSignOfLifeMs: 0,
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const auth = new StaticAuth("https://127.0.0.1:1");
  return { accepted, client: new KubeClient({ clock: systemClock, auth, transport }) };
}

const JSON_LIST = {
  status: 200,
  contentType: "application/json",
  body: new TextEncoder().encode('{"metadata":{"resourceVersion":"5"},"items":[{"a":1}]}'),
};

Deno.test("KubeClient reads a list and a watch in protobuf, if it asked for it", async () => {
  const object = envelope("Service", protobufService("web"));
  const { accepted, client } = answering(
    { status: 200, contentType: PROTOBUF, body: protobufList("Service", [protobufService("a")]) },
    { status: 200, contentType: `${PROTOBUF};stream=watch`, body: protobufEvent("ADDED", object) },
    JSON_LIST,
    JSON_LIST,
  );
  const names: unknown[] = [];
  const note = (raw: unknown) => void names.push(metadataOf(raw).name);
  const options = { path: SERVICES, protobufKind: "Service", signal };
  assertEquals((await client.listPage(options, note)).resourceVersion, "7");
  for await (const events of await client.watch({ ...options, timeoutSeconds: 1 })) {
    for (const { object } of events) note(object);
  }
  assertEquals(names, ["a", "web"]);
  // A server may answer in JSON; other kinds are requested in JSON.
  assertEquals((await client.listPage(options, () => {})).resourceVersion, "5");
  await client.listPage({ path: SERVICES, signal }, () => {});
  const both = `${PROTOBUF}, application/json`;
  assertEquals(accepted, [both, both, both, "application/json"]);
});

Deno.test("KubeClient requests JSON from then on, where the server refuses protobuf", async () => {
  for (const status of [406, 415]) {
    const refusal = { status, contentType: "text/plain", body: new TextEncoder().encode("no") };
    const { accepted, client } = answering(refusal, JSON_LIST, JSON_LIST, refusal);
    const options = { path: SERVICES, protobufKind: "Service", signal };
    for (let nth = 0; nth < 2; nth++) await client.listPage(options, () => {});
    assertEquals(accepted.slice(1), ["application/json", "application/json"]);
    await assertRejects(() => client.listPage(options, () => {}), ApiError, `${status}`);
  }
});

Deno.test("KubeClient reads the Status of an error in protobuf", async () => {
  const status = message([[3, "too old"], [4, "Expired"], [6, 410]]);
  const { client } = answering(
    { status: 410, contentType: PROTOBUF, body: envelope("Status", status) },
    { status: 500, contentType: PROTOBUF, body: new Uint8Array([1, 2, 3]) },
  );
  const list = () => client.listPage({ path: SERVICES, protobufKind: "Service", signal }, () => {});
  const gone = await assertRejects(list, ApiError, "410 Expired: too old");
  assertEquals(gone.isGone(), true);
  await assertRejects(list, ApiError, "500: no reason given");
});
