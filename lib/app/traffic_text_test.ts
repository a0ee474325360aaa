import { assertEquals } from "@std/assert";
import { trafficText } from "./traffic_text.ts";

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
