import { assertEquals } from "@std/assert";
import { ageText, loadNotes, operationsText, sizeText, trafficText } from "./number_texts.ts";

const RATES = { connections: 2, packetsIn: 9, packetsOut: 9, bytesIn: 1204, bytesOut: 0 };

Deno.test("numbers are texts that people read", () => {
  const texts: readonly (readonly [string | readonly string[], string | readonly string[]])[] = [
    [operationsText({ reads: 1, transactions: 1, lines: 12 }), "1 read, 1 transaction, 12 lines"],
    [operationsText({ addresses: 1, entries: 1 }), "1 address, 1 entry"],
    [operationsText({ openedSockets: 2, addedAddresses: 1 }), "2 opened sockets, 1 added address"],
    [operationsText({ "virtual servers": 1 }), "1 virtual server"],
    [operationsText({}), "nothing to do"],
    [sizeText(999), "999 B"],
    [sizeText(1000), "1.0 kB"],
    [sizeText(999_949), "999.9 kB"],
    [sizeText(999_950), "1.0 MB"],
    [sizeText(Number.MAX_SAFE_INTEGER * 1000), "9007.2 PB"],
    [
      trafficText({
        ...{ bytesFromClients: 999, bytesToClients: 3_500_000 },
        ...{ packetsFromClients: 4, packetsToClients: 70 },
      }),
      "999 B in 4 packets, 3.5 MB out in 70",
    ],
    [
      loadNotes({ active: 3, inactive: 1, rates: RATES }),
      ["3 active", "1 inactive", "2 new/s", "1.2 kB/s in"],
    ],
    [loadNotes({ active: 0, inactive: 0 }), []],
    [ageText(-5), "0s"],
    [ageText(59_400), "59s"],
    [ageText(61_000), "1m1s"],
    [ageText(3_600_000 * 3 + 720_000), "3h12m"],
    [ageText(86_400_000 * 2 + 3_600_000), "2d1h"],
  ];
  assertEquals(texts.map(([found]) => found), texts.map(([, expected]) => expected));
});
