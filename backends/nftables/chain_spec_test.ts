import { assertEquals, assertThrows } from "@std/assert";
import { chainName, type ChainSpec, fromPod } from "./chain_spec.ts";

const SPEC: ChainSpec = { front: "vip", treatment: "keep", main: 2 };

Deno.test("chainName() holds the whole spec", () => {
  const cases: readonly [Partial<ChainSpec>, string][] = [
    [{}, "to-2"],
    [{ treatment: "off-cluster" }, "off-cluster-2"],
    [{ front: "port", treatment: "masquerade" }, "node-port-masquerade-2"],
    [{ treatment: "local", local: "drop" }, "local-2-drop"],
    [{ treatment: "local", local: 1, affinitySeconds: 60 }, "local-2-1-sticky-60"],
  ];
  for (const [spec, name] of cases) assertEquals(chainName({ ...SPEC, ...spec }), name);
});

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
