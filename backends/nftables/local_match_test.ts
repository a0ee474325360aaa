import { assertEquals, assertThrows } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import { fromPod, notFromPod } from "./local_match.ts";

Deno.test("fromPod() and notFromPod() say the same of a packet, one of them denied", () => {
  const cases: readonly [LocalTrafficDetector, pod: string | undefined, not: string | undefined][] =
    [
      [
        { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
        "ip saddr 10.0.0.0/8",
        "ip saddr != 10.0.0.0/8",
      ],
      [{ kind: "byBridge", interfaceName: "cni0" }, 'iifname "cni0"', 'iifname != "cni0"'],
      [{ kind: "byInterfacePrefix", prefix: "veth" }, 'iifname "veth*"', 'iifname != "veth*"'],
      [{ kind: "none" }, undefined, undefined],
    ];
  for (const [detector, pod, not] of cases) {
    assertEquals([fromPod(detector, "IPv4"), notFromPod(detector, "IPv4")], [pod, not]);
  }
  const byCidr = { kind: "byCidr", cidr: parseCidr("fd00::/8") } as const;
  assertEquals(fromPod(byCidr, "IPv6"), "ip6 saddr fd00::/8");
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
