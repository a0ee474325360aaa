import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../net/ip_address.ts";
import { compareLayer2 } from "./compare_layer2.ts";

function compare(
  { owned = [], others = [] }: {
    readonly owned?: readonly string[];
    readonly others?: readonly string[];
  },
  found: Readonly<Record<string, readonly string[]>>,
): readonly string[] {
  return compareLayer2({
    owned: new Set(owned.map(parseIpAddress)),
    others: others.map(parseIpAddress),
    found: new Map(
      Object.entries(found).map(([address, names]) => [parseIpAddress(address), names]),
    ),
  }).map(({ kind, name, found }) => [kind, name, ...found === undefined ? [] : [found]].join(" "));
}

Deno.test("compareLayer2() misses owned addresses that only virtual interfaces have", () => {
  const owned = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];
  const found = {
    "203.0.113.1": ["eth0"],
    "203.0.113.2": ["kube-ipvs0"],
    "203.0.113.3": ["lo", "eth0"],
  };
  assertEquals(compare({ owned }, found), ["missing 203.0.113.2"]);
});

Deno.test("compareLayer2() finds addresses that another node answers for", () => {
  const others = ["203.0.113.9", "203.0.113.10", "203.0.113.11"];
  const found = {
    "203.0.113.9": ["eth0"],
    "203.0.113.10": ["lo"],
    // An address that no Service has.
    "203.0.113.12": ["eth0"],
  };
  assertEquals(compare({ others }, found), [
    "extra 203.0.113.9 on eth0, but this node does not answer for it",
  ]);
});
