import { assertEquals } from "@std/assert";
import {
  isKubeRouterPolicyChain,
  isKubeRouterPolicySet,
  isKubeRouterPolicyTable,
} from "./policy_leftovers.ts";

const HASH = "XPGD46QRK7WJZT7O";

Deno.test("isKubeRouterPolicyChain() knows the chains of policies, and none of kube-router's other parts", () => {
  const chains = [
    ...["KUBE-ROUTER-INPUT", "KUBE-ROUTER-FORWARD", "KUBE-ROUTER-OUTPUT", `KUBE-POD-FW-${HASH}`],
    ...["KUBE-NWPLCY-DEFAULT", "KUBE-NWPLCY-COMMON", "KUBE-NWPLCY-TAIL", `KUBE-NWPLCY-${HASH}`],
  ];
  for (const chain of chains) {
    assertEquals(isKubeRouterPolicyChain("filter", chain), true, chain);
    assertEquals(isKubeRouterPolicyChain("nat", chain), false, chain);
  }
  const others = [
    ...["KUBE-ROUTER-SERVICES", "KUBE-ROUTER-HAIRPIN", "KUBE-POD-FW-MINE", "KUBE-NWPLCY-"],
    ...[`KUBE-NWPLCY-${HASH}X`, "KUBE-FORWARD", "cali-FORWARD", "CILIUM_FORWARD"],
  ];
  for (const chain of others) assertEquals(isKubeRouterPolicyChain("filter", chain), false, chain);
});

Deno.test("isKubeRouterPolicySet() leaves sets of routes, Services and other software alone", () => {
  const sets = [`KUBE-SRC-${HASH}`, `KUBE-DST-${HASH}`, "kube-router-local-pods"];
  for (const set of sets) {
    assertEquals([set, `inet6:${set}`].map(isKubeRouterPolicySet), [true, true], set);
  }
  const others = [
    ...["kube-router-pod-subnets", "kube-router-node-ips", "inet6:kube-router-svip", "cali40s:x"],
    ...["KUBE-SRC-SHORT", "KUBE-CLUSTER-IP", `MY-KUBE-SRC-${HASH}`],
  ];
  for (const set of others) assertEquals(isKubeRouterPolicySet(set), false, set);
});

Deno.test("isKubeRouterPolicyTable() accepts each name in its own family only", () => {
  const tables = [
    { family: "ip", name: "kube-router-filter-ipv4" },
    { family: "ip6", name: "kube-router-filter-ipv6" },
    { family: "inet", name: "kube-router-filter-ipv4" },
    { family: "ip", name: "kube-router-filter-ipv6" },
    { family: "ip", name: "constructor" },
  ];
  assertEquals(tables.map(isKubeRouterPolicyTable), [true, true, false, false, false]);
});
