import { assertEquals } from "@std/assert";
import { pool } from "../../tests/support/builders/routed_objects.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { compareLayer2 } from "./compare_layer2.ts";

const POOLS = [
  pool("office", ["203.0.113.0/24"]),
  pool("routed", ["198.51.100.0/24"], { announce: "bgp" }),
];

function compare(
  owned: readonly string[],
  found: Readonly<Record<string, readonly string[]>>,
  ofNode: readonly string[] = [],
): readonly string[] {
  return compareLayer2({
    owned: new Set(owned.map(parseIpAddress)),
    pools: POOLS,
    found: new Map(
      Object.entries(found).map(([address, names]) => [parseIpAddress(address), names]),
    ),
    ofNode: new Set(ofNode.map(parseIpAddress)),
  }).map(({ kind, name, found }) => [kind, name, ...found === undefined ? [] : [found]].join(" "));
}

Deno.test("compareLayer2() misses owned addresses that only virtual interfaces have", () => {
  const owned = ["203.0.113.1", "203.0.113.2", "203.0.113.3"];
  const found = {
    "203.0.113.1": ["eth0"],
    "203.0.113.2": ["kube-ipvs0"],
    "203.0.113.3": ["lo", "eth0"],
  };
  assertEquals(compare(owned, found), ["missing 203.0.113.2"]);
});

Deno.test("compareLayer2() finds addresses of pools that this node does not answer for", () => {
  const found = {
    "203.0.113.9": ["eth0"],
    "203.0.113.10": ["lo"],
    "203.0.113.11": ["eth0"],
    "198.51.100.1": ["eth0"],
    "192.0.2.1": ["eth0"],
  };
  assertEquals(compare([], found, ["203.0.113.11"]), [
    "extra 203.0.113.9 on eth0, but this node does not answer for it",
  ]);
});
