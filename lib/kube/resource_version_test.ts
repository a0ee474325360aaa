import { assertEquals } from "@std/assert";
import { isOlderVersion } from "./resource_version.ts";

for (
  const [version, other, older] of [
    ["7", "8", true],
    ["8", "8", false],
    ["9", "8", false],
    ["99", "100", true],
    ["100", "99", false],
    ["9007199254740992", "9007199254740993", true],
    ["18446744073709551615", "18446744073709551614", false],
    ["abc", "8", false],
    ["7", "abc", false],
    ["007", "8", false],
    ["", "8", false],
    [undefined, "8", false],
  ] as const
) {
  Deno.test(`isOlderVersion() says of ${version} and ${other}: ${older}`, () => {
    assertEquals(isOlderVersion(version, other), older);
  });
}
