import { assert, assertEquals } from "@std/assert";
import { readSecrets } from "../../../backends/announce/bird/data_plane.ts";
import { bgpPeer } from "../../../tests/support/builders/bgp_plans.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { ApiError } from "../../kube/api_error.ts";
import { SecretReader } from "./secret_reader.ts";

/** A reader, whose client gives one answer or fails. */
function readerOf(answer: { value?: unknown; error?: Error }, clock = new FakeClock()) {
  const reader = new SecretReader(clock, "kube-system");
  const paths: string[] = [];
  reader.client = {
    get(path) {
      paths.push(path);
      return answer.error ? Promise.reject(answer.error) : Promise.resolve(answer.value);
    },
  };
  const peers = [bgpPeer("tor", "192.0.2.2", { passwordSecret: { name: "bgp", key: "tor" } })];
  const read = (former?: string) =>
    readSecrets(() => 0.5, former, peers, (key) => reader.read(key));
  return { clock, paths, read, reader };
}

const secretOf = (text: string) => ({ data: { tor: btoa(text) } });

Deno.test("the password of a Secret is read each minute, and stays while the API server is away", async () => {
  const answer: { value?: unknown; error?: Error } = { value: secretOf("first\n") };
  const { clock, paths, read } = readerOf(answer);
  const has = async (password: string) => {
    const { leftOut, text } = await read();
    assertEquals([...leftOut], []);
    assert(text.endsWith(`define password_tor = "${password}";\n`), text);
  };
  await has("first");
  assertEquals(paths, ["/api/v1/namespaces/kube-system/secrets/bgp"]);
  answer.value = secretOf("second");
  await has("first");
  assertEquals(paths.length, 1, "no request for each change of the plan");
  await clock.advance(60_000);
  await has("second");
  answer.error = new Error("connection refused");
  await clock.advance(60_000);
  await has("second");
  await has("second");
  assertEquals(paths.length, 3, "no request for each peer while there is no answer");
});

/** Answers of the API server, and why the peer has no session. */
const WRONG: readonly (readonly [answer: { value?: unknown; error?: Error }, reason: string])[] = [
  [
    { error: new ApiError("forbidden", { status: 403 }) },
    "Secret kube-system/bgp",
  ],
  [{ value: {} }, "Secret kube-system/bgp has no key 'tor'"],
  [{ value: null }, "has no key 'tor'"],
  [{ value: { data: { tor: 7 } } }, "has no key 'tor'"],
  [{ value: { data: { tor: "%" } } }, "key 'tor' of Secret 'bgp' of peer tor"],
  [{ value: secretOf("\xff") }, "key 'tor' of Secret 'bgp' of peer tor"],
  [{ value: secretOf("") }, "it is empty"],
  [{ value: secretOf("a".repeat(81)) }, "TCP-MD5 takes at most 80"],
  [{ value: secretOf('a"\nprotocol') }, "a double quote or a control character"],
];

for (const [answer, reason] of WRONG) {
  Deno.test(`a peer whose Secret cannot be used has no session: ${reason}`, async () => {
    const { leftOut, text } = await readerOf(answer).read();
    assert(leftOut.get("tor")?.includes(reason), leftOut.get("tor"));
    assertEquals(text.includes("password_tor"), false);
  });
}

Deno.test("a missing Secret is asked for once a minute, and used once it is there", async () => {
  const answer: { value?: unknown; error?: Error } = {
    error: new ApiError("not found", { status: 404 }),
  };
  const { clock, paths, read } = readerOf(answer);
  for (const left of [1, 1]) assertEquals((await read()).leftOut.size, left);
  assertEquals(paths.length, 1);
  answer.error = new Error("connection refused");
  await clock.advance(60_000);
  assertEquals((await read()).leftOut.get("tor")?.endsWith("kube-system/bgp: not found"), true);
  delete answer.error;
  answer.value = secretOf("first");
  await clock.advance(60_000);
  assertEquals((await read()).leftOut.size, 0);
});

Deno.test("a Secret that was never read leaves the password of the last run, or only its peer out", async () => {
  const { text: former } = await readerOf({ value: secretOf("first") }).read();
  const { read, reader } = readerOf({ error: new Error("connection refused") });
  for (const client of [reader.client, undefined]) {
    reader.client = client;
    const { leftOut, text } = await read(former);
    assertEquals([[...leftOut], text], [[], former]);
    const reason = (await read()).leftOut.get("tor");
    assert(reason?.endsWith("Cannot read Secret kube-system/bgp yet"), reason);
  }
});
