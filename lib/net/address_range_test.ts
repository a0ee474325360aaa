import { assertEquals } from "@std/assert";
import { blocksOfRange, joinRanges, tryParseAddressRange } from "./address_range.ts";
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

Deno.test("joinRanges() joins ranges that overlap or follow each other, of each family", () => {
  const texts = [
    ...["2001:db8::4-2001:db8::5", "192.0.2.8/30", "0.0.0.0-0.0.0.1", "192.0.2.4/30"],
    ...["2001:db8::/126", "192.0.2.9", "192.0.2.13", "::/127"],
  ];
  const joined = joinRanges(texts.map((text) => tryParseAddressRange(text)!));
  assertEquals(
    joined.map(({ family, first, last }) => [first, last].map((end) => addressAt(end, family))),
    [
      ["0.0.0.0", "0.0.0.1"],
      ["192.0.2.4", "192.0.2.11"],
      ["192.0.2.13", "192.0.2.13"],
      ["::", "::1"],
      ["2001:db8::", "2001:db8::5"],
    ] as never,
  );
});
