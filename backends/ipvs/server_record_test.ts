import { assert, assertEquals, assertThrows } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import {
  formatServerRecord,
  MAX_RECORD_BYTES,
  parseServerRecord,
  type ServerRecord,
} from "./server_record.ts";
import { realServerKey, serverKey } from "./virtual_server.ts";

const VIP = parseIpAddress("fd00:96::1");
const RECORD: ServerRecord = {
  drains: [{
    server: serverKey({ protocol: "TCP", address: VIP, port: 80 }),
    real: realServerKey(parseIpAddress("fd00:10::1"), 8080),
    sinceMs: 1_767_225_600_000,
  }],
  nodePorts: {
    addresses: new Set([parseIpAddress("fd00:1::1")]),
    ports: new Set(["tcp 30080", "udp 30053"]),
  },
};

Deno.test("parseServerRecord() parses the output of formatServerRecord()", () => {
  assertEquals(parseServerRecord(formatServerRecord(RECORD)), RECORD);
});

Deno.test("formatServerRecord() stays within the limits of the parser, and keeps the oldest drains", () => {
  const address = parseIpAddress(Array(8).fill("ffff").join(":"));
  const drains = Array.from({ length: 30_000 }, (_, number) => ({
    server: serverKey({ protocol: "TCP" as const, address, port: 65_535 }),
    real: realServerKey(address, 10_000 + number),
    sinceMs: 1_767_225_600_000 - number,
  }));
  const ports = ["tcp", "udp"].flatMap((protocol) =>
    Array.from({ length: 65_535 }, (_, port) => `${protocol} ${port + 1}`)
  );
  const text = formatServerRecord({
    drains,
    nodePorts: { addresses: new Set([address]), ports: new Set(ports) },
  });
  assert(text.length < MAX_RECORD_BYTES, `${text.length} bytes`);
  const { drains: kept, nodePorts } = parseServerRecord(text);
  assertEquals(kept[0], drains.at(-1));
  assert(kept.every(({ sinceMs }) => sinceMs < drains[10_000]!.sinceMs));
  assertEquals(nodePorts.ports.size, ports.length);
});

const LISTS = '"nodePortAddresses":[],"nodePorts":[]';
const BROKEN: readonly (readonly [string, string])[] = [
  ["cut off", '{"version":1,"drains":[["-t 10.9'],
  ["empty", ""],
  ["null", "null"],
  ["a list", "[]"],
  ["of another version", '{"version":2}'],
  ["one of addresses", '{"version":1,"addresses":[],"routes":[],"standIns":{}}'],
  ["with a time in words", `{"version":1,"drains":[["a","b","now"]],${LISTS}}`],
  ["with a time too large for a number", `{"version":1,"drains":[["a","b",null]],${LISTS}}`],
  ["with an entry that is no list", `{"version":1,"drains":[{"toString":1}],${LISTS}}`],
  [
    "with a host name",
    '{"version":1,"drains":[],"nodePortAddresses":["localhost"],"nodePorts":[]}',
  ],
  ["with a range", '{"version":1,"drains":[],"nodePortAddresses":["::/0"],"nodePorts":[]}'],
  ["with all ports", '{"version":1,"drains":[],"nodePortAddresses":[],"nodePorts":["tcp *"]}'],
  ["nested without end", `{"version":${"[".repeat(1_000_000)}`],
  ["nested deeply", `{"version":1,"drains":${"[".repeat(100_000)}${"]".repeat(100_000)},${LISTS}}`],
];

for (const [what, text] of BROKEN) {
  Deno.test(`parseServerRecord() refuses a text that is ${what}`, () => {
    const error = assertThrows(() => parseServerRecord(text), SyntaxError);
    assert(error.message.length < 400, error.message);
  });
}
