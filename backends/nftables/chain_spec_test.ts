import { assertEquals, assertThrows } from "@std/assert";
import { fromPod } from "./chain_spec.ts";

Deno.test("fromPod() makes a prefix that is as long as names get a whole name", () => {
  const matchOf = (prefix: string) => fromPod({ kind: "byInterfacePrefix", prefix }, "IPv4");
  assertEquals(matchOf("fourteen-bytes"), 'iifname "fourteen-bytes*"');
  assertEquals(matchOf("fifteen-letters"), 'iifname "fifteen-letters"');
});

Deno.test("fromPod() refuses a name that nft would read as something else", () => {
  for (const interfaceName of ['a"b', "a\\b", "veth*", "a b"]) {
    const detector = { kind: "byBridge", interfaceName } as const;
    assertThrows(() => fromPod(detector, "IPv4"), RangeError, "can't quote its name");
  }
});
