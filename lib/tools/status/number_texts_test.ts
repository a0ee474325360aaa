import { assertEquals } from "@std/assert";
import { ageText, loadNotes, operationsText, trafficText } from "./number_texts.ts";

Deno.test("operationsText() counts one of a thing as one", () => {
  const cases = [
    [{ reads: 1, transactions: 1, lines: 12 }, "1 read, 1 transaction, 12 lines"],
    [{ addresses: 1, entries: 1 }, "1 address, 1 entry"],
    [{ openedSockets: 2, addedAddresses: 1 }, "2 opened sockets, 1 added address"],
    [{ addresses: 2, "virtual servers": 1 }, "2 addresses, 1 virtual server"],
    [{}, "nothing to do"],
  ] as const;
  for (const [operations, text] of cases) assertEquals(operationsText(operations), text);
});

for (
  const [bytes, text] of [
    [0, "0 B"],
    [999, "999 B"],
    [1000, "1.0 kB"],
    [999_949, "999.9 kB"],
    [999_950, "1.0 MB"],
    [3_456_000_000, "3.5 GB"],
    [Number.MAX_SAFE_INTEGER * 1000, "9007.2 PB"],
  ] as const
) {
  Deno.test(`trafficText() writes ${bytes} bytes as ${text}`, () => {
    assertEquals(
      trafficText({ bytesFromClients: bytes, bytesToClients: 1, opened: 2, open: 0 }),
      `2 in all, ${text} in, 1 B out`,
    );
  });
}

Deno.test("trafficText() shows packets if the mode counts them", () => {
  const packets = { packetsFromClients: 4, packetsToClients: 70 };
  assertEquals(
    trafficText({ bytesFromClients: 999, bytesToClients: 3_500_000, ...packets }),
    "999 B in 4 packets, 3.5 MB out in 70",
  );
});

Deno.test("loadNotes() shows non-zero figures only", () => {
  const rates = { connections: 2, packetsIn: 9, packetsOut: 9, bytesIn: 1204, bytesOut: 0 };
  assertEquals(loadNotes({ active: 3, inactive: 1, rates }), [
    "3 active",
    "1 inactive",
    "2 new/s",
    "1.2 kB/s in",
  ]);
  assertEquals(loadNotes({ active: 0, inactive: 0 }), []);
});

Deno.test("ageText() shows the two largest units", () => {
  const cases: readonly [number, string][] = [
    [-5, "0s"],
    [59_400, "59s"],
    [61_000, "1m1s"],
    [3_600_000 * 3 + 720_000, "3h12m"],
    [86_400_000 * 2 + 3_600_000, "2d1h"],
  ];
  for (const [milliseconds, text] of cases) assertEquals(ageText(milliseconds), text);
});
