import { assert, assertEquals } from "@std/assert";
import { testClientHello, type TestHello } from "../../../tests/support/builders/client_hello.ts";
import { parseClientHello } from "./client_hello.ts";

const NAME = "shop.example.com";
const GREASE = [0x0a0a, [0]] as const;
const ECH = [0xfe0d, Array(200).fill(9)] as const;
/** With a key of a post-quantum exchange, longer than a packet. */
const KEY_SHARE = [51, Array(1216).fill(5)] as const;
const LONG = `${"a".repeat(63)}.`.repeat(3) + "a".repeat(61);

function withByte(
  at: number,
  value: number,
  extensions: TestHello["extensions"] = [],
): Uint8Array {
  const bytes = testClientHello({ names: [NAME], extensions });
  bytes[at] = value;
  return bytes;
}

function text(...lines: readonly string[]): Uint8Array {
  return new TextEncoder().encode(lines.join("\r\n"));
}

const CASES: readonly (readonly [what: string, Uint8Array, name: string | undefined])[] = [
  ["a name", testClientHello({ names: [NAME] }), NAME],
  ["TLS 1.0", testClientHello({ names: [NAME], version: 0x0301 }), NAME],
  [
    "a name in capitals with a dot at its end",
    testClientHello({ names: ["SHOP.Example.COM."] }),
    NAME,
  ],
  ["a name of 253 bytes", testClientHello({ names: [LONG] }), LONG],
  [
    "other extensions, GREASE and ECH before it",
    testClientHello({
      ...{ names: [NAME], extensions: [GREASE, ECH, KEY_SHARE] },
    }),
    NAME,
  ],
  ["one byte in each record", testClientHello({ names: [NAME], fragment: 1 }), NAME],
  [
    "records of 100 bytes, and data after them",
    new Uint8Array([
      ...testClientHello({ names: [NAME], extensions: [KEY_SHARE], fragment: 100 }),
      ...[23, 3, 3, 0, 1, 0],
    ]),
    NAME,
  ],
  [
    "a name of IDNA",
    testClientHello({ names: ["xn--bcher-kva.example"] }),
    "xn--bcher-kva.example",
  ],
  ["no name", testClientHello({ extensions: [GREASE] }), undefined],
  ["no extensions", testClientHello({ hasExtensions: false, version: 0x0301 }), undefined],
  ["names of another type only", testClientHello({ names: [NAME], nameType: 7 }), undefined],
  ["no bytes", testClientHello({ names: [""] }), undefined],
  [
    "255 bytes",
    testClientHello({ names: [`${"a".repeat(63)}.`.repeat(3) + "a".repeat(63)] }),
    undefined,
  ],
  ["9,000 bytes", testClientHello({ names: ["a".repeat(9000)] }), undefined],
  ["a NUL", testClientHello({ names: [`${NAME}\0.evil.example`] }), undefined],
  ["bytes that are not ASCII", testClientHello({ names: ["b\xfccher.example"] }), undefined],
  ["an IPv4 address", testClientHello({ names: ["192.0.2.1"] }), undefined],
  ["an IPv6 address", testClientHello({ names: ["2001:db8::1"] }), undefined],
  ["a wildcard", testClientHello({ names: ["*.example.com"] }), undefined],
  ["an empty label", testClientHello({ names: ["shop..example.com"] }), undefined],
  ["HTTP", text("GET / HTTP/1.1", "Host: shop.example.com", "", ""), undefined],
  ["SSH", text("SSH-2.0-OpenSSH_9.2"), undefined],
  ["SSL 2", new Uint8Array([0x80, 0x2e, 1, 3, 1]), undefined],
  ["another major version", new Uint8Array([22, 2, 1]), undefined],
];
for (const [what, bytes, name] of CASES) {
  Deno.test(`parseClientHello() takes ${name ?? "no name"} of ${what}`, () => {
    assertEquals(parseClientHello(bytes), { kind: "complete", name } as unknown);
  });
}

const hello = testClientHello({ names: [NAME] });
const INVALID: readonly (readonly [what: string, Uint8Array, reason: RegExp])[] = [
  ["an empty record", new Uint8Array([22, 3, 1, 0, 0]), /records/],
  ["a record that is too long", new Uint8Array([22, 3, 1, 0x40, 1]), /records/],
  [
    "an alert within it",
    new Uint8Array([
      ...testClientHello({ names: [NAME], fragment: 50 }).subarray(0, 55),
      ...[21, 3, 1, 0, 2],
    ]),
    /records/,
  ],
  ["another message", withByte(5, 2), /another message/],
  ["a message of 16 MB", withByte(6, 255), /longer than 16 KiB/],
  ["a message that ends early", withByte(8, hello[8]! - 1), /lengths/],
  ["extensions that end early", withByte(85, hello[85]! - 1), /lengths/],
  ["data after the extensions", withByte(85, 4, [[21, []]]), /lengths/],
  [
    "data after the names",
    testClientHello({ extensions: [[0, [0, 4, 0, 0, 1, 97, 9]]] }),
    /lengths/,
  ],
  ["a session that is too long", withByte(43, 255), /lengths/],
  ["the name twice", testClientHello({ names: [NAME], times: 2 }), /two extensions/],
  ["two names", testClientHello({ names: [NAME, "other.example"] }), /two names/],
  ["an extension without a list", testClientHello({ extensions: [[0, []]] }), /lengths/],
  [
    "a list that is too long",
    testClientHello({ extensions: [[0, [0, 9, 0, 0, 1, 97]]] }),
    /lengths/,
  ],
  [
    "a name that is too long",
    testClientHello({ extensions: [[0, [0, 4, 0, 0, 9, 97]]] }),
    /lengths/,
  ],
];
for (const [what, bytes, reason] of INVALID) {
  Deno.test(`parseClientHello() refuses ${what}`, () => {
    const parsed = parseClientHello(bytes);
    assert(parsed.kind === "invalid" && reason.test(parsed.reason), JSON.stringify(parsed));
  });
}

Deno.test("parseClientHello() waits for the last byte, however it is fragmented", () => {
  for (const fragment of [1, 3, 4, 5, 64, Infinity]) {
    const bytes = testClientHello({ names: [NAME], fragment });
    for (let length = 0; length < bytes.length; length++) {
      const parsed = parseClientHello(bytes.subarray(0, length));
      assert(parsed.kind === "incomplete", `${length}`);
      assert(parsed.atLeast > length && parsed.atLeast <= bytes.length, `${length}`);
    }
  }
});

Deno.test("parseClientHello() is asked seldom, if a client sends byte by byte in tiny records", () => {
  const bytes = testClientHello({ extensions: [[21, Array(2500).fill(0)]], fragment: 1 });
  let asked = 0;
  for (let length = 0; length < bytes.length; asked++) {
    const parsed = parseClientHello(bytes.subarray(0, length));
    length = parsed.kind === "incomplete" ? parsed.atLeast : bytes.length;
  }
  assert(asked < 60, `${asked}`);
});

Deno.test("parseClientHello() has an answer for any bytes, and for more of them the same", () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  let state = seed;
  const random = (below: number) => (state = state * 48_271 % 2_147_483_647) % below;
  for (let round = 0; round < 20_000; round++) {
    const bytes = testClientHello({
      ...{ names: [NAME], extensions: [GREASE], fragment: 1 + random(200), times: random(3) },
    });
    for (let changes = random(4); changes > 0; changes--) bytes[random(bytes.length)] = random(256);
    const whole = parseClientHello(bytes);
    const part = parseClientHello(bytes.subarray(0, random(bytes.length)));
    if (part.kind !== "incomplete") assertEquals(part, whole, `seed ${seed}, round ${round}`);
  }
});
