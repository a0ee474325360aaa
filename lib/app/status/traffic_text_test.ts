import { assertEquals } from "@std/assert";
import { loadNotes, trafficText } from "./traffic_text.ts";

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

Deno.test("trafficText() writes packets where they are what is seen", () => {
  const packets = { packetsFromClients: 4, packetsToClients: 70 };
  assertEquals(
    trafficText({ bytesFromClients: 999, bytesToClients: 3_500_000, ...packets }),
    "999 B in 4 packets, 3.5 MB out in 70",
  );
});

Deno.test("loadNotes() says what there is, and nothing of what is 0", () => {
  const rates = { connections: 2, packetsIn: 9, packetsOut: 9, bytesIn: 1204, bytesOut: 0 };
  assertEquals(loadNotes({ active: 3, inactive: 1, rates }), [
    "3 active",
    "1 inactive",
    "2 new/s",
    "1.2 kB/s in",
  ]);
  assertEquals(loadNotes({ active: 0, inactive: 0 }), []);
});
