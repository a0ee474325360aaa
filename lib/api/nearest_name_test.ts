import { assertEquals } from "@std/assert";
import { didYouMean, nearestName } from "./nearest_name.ts";

const KNOWN = ["proxy-mode", "nodeport-addresses", "clusterCIDR", "v"];

Deno.test("nearestName() finds the probable name", () => {
  assertEquals(nearestName("proxy-mod", KNOWN), "proxy-mode");
  assertEquals(nearestName("node-port-addresses", KNOWN), "nodeport-addresses");
  assertEquals(nearestName("clustercidr", KNOWN), "clusterCIDR");
  assertEquals(nearestName("wacht", ["watch"]), "watch");
});

Deno.test("nearestName() returns nothing if no name is near", () => {
  assertEquals(nearestName("conntrack-min", KNOWN), undefined);
  assertEquals(nearestName("", KNOWN), undefined);
  assertEquals(nearestName("v".repeat(100_000), ["v".repeat(100_001)]), undefined);
  assertEquals(nearestName("proxy-mode", []), undefined);
});

Deno.test("didYouMean() makes a question of it", () => {
  assertEquals(didYouMean("proxymode", KNOWN, "--"), "; did you mean '--proxy-mode'?");
  assertEquals(didYouMean("whatever", KNOWN), "");
});
