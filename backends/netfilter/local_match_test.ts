import { assertEquals } from "@std/assert";
import { fromPod } from "./local_match.ts";

Deno.test("fromPod() makes a prefix that is as long as names get a whole name", () => {
  const matchOf = (prefix: string) => fromPod({ kind: "byInterfacePrefix", prefix });
  assertEquals(matchOf("veth"), { inInterface: { value: "veth+" } });
  assertEquals(matchOf("fourteen-bytes"), { inInterface: { value: "fourteen-bytes+" } });
  assertEquals(matchOf("fifteen-letters"), { inInterface: { value: "fifteen-letters" } });
});
