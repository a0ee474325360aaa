import { assertEquals } from "@std/assert";
import { interfaceNameLength, isInterfaceName } from "./interface_name.ts";

const NAMES: readonly [text: string, expected: boolean][] = [
  ["cni0", true],
  ["eth0.100", true],
  ["a", true],
  ["...", true],
  ["fifteen-letters", true],
  ["sixteen--letters", false],
  ["seven-ü", true],
  ["üüüüüüüü", false],
  ["", false],
  [".", false],
  ["..", false],
  ["a/b", false],
  ["eth0:1", false],
  ["br 0", false],
  ["br0\n-A INPUT", false],
  ["br0\0", false],
];

Deno.test("isInterfaceName() accepts the names that the kernel accepts", async (t) => {
  for (const [text, expected] of NAMES) {
    await t.step(JSON.stringify(text), () => assertEquals(isInterfaceName(text), expected));
  }
});

Deno.test("interfaceNameLength() counts bytes", () => {
  assertEquals(interfaceNameLength("brü0"), 5);
});
