import { assertEquals } from "@std/assert";
import { blocksOfRange, tryParseAddressRange } from "./address_range.ts";
import { addressAt } from "./ip_address.ts";

/** The ends of a range as text; `undefined` if the text is none. */
function ends(text: string): readonly string[] | undefined {
  const range = tryParseAddressRange(text);
  return range && [range.first, range.last].map((end) => addressAt(end, range.family));
}

Deno.test("tryParseAddressRange() reads blocks, ranges and single addresses of both families", () => {
  assertEquals(ends("192.0.2.0/24"), ["192.0.2.0", "192.0.2.255"]);
  assertEquals(ends("192.0.2.10-192.0.2.20"), ["192.0.2.10", "192.0.2.20"]);
  assertEquals(ends("192.0.2.10 - 192.0.2.10"), ["192.0.2.10", "192.0.2.10"]);
  assertEquals(ends("192.0.2.7"), ["192.0.2.7", "192.0.2.7"]);
  assertEquals(ends("2001:db8::/126"), ["2001:db8::", "2001:db8::3"]);
  assertEquals(ends("2001:db8::ffff-2001:db8::1:0"), ["2001:db8::ffff", "2001:db8::1:0"]);
});

Deno.test("tryParseAddressRange() refuses ends in the wrong order or of two families", () => {
  for (
    const text of [
      "",
      "-",
      "192.0.2.2-192.0.2.1",
      "192.0.2.1-2001:db8::1",
      "192.0.2.1-",
      "192.0.2.1-192.0.2.2-192.0.2.3",
      "192.0.2.0/33",
      "web",
    ]
  ) assertEquals(ends(text), undefined, text);
});

Deno.test("blocksOfRange() returns the fewest blocks, whose addresses are those of the range", () => {
  const range = tryParseAddressRange("192.0.2.10-192.0.2.20")!;
  const blocks = ["192.0.2.10/31", "192.0.2.12/30", "192.0.2.16/30", "192.0.2.20/32"];
  assertEquals([...blocksOfRange(range)] as string[], blocks);
});
