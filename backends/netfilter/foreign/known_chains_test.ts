import { assertEquals } from "@std/assert";
import { type ChainOwner, isKubeProxyChain, isOfOtherModes, knownChain } from "./known_chains.ts";

const CASES: readonly (readonly [table: string, chain: string, owner: ChainOwner | undefined])[] = [
  ["nat", "KUBE-SVC-XPGD46QRK7WJZT7O", "kube-proxy"],
  ["nat", "KUBE-SEP-SXIVWICOYRO3J4NJ", "kube-proxy"],
  ["nat", "KUBE-XLB-XPGD46QRK7WJZT7O", "kube-proxy"],
  ["nat", "KUBE-SVC-SHORT", undefined],
  ["nat", "KUBE-SVC-XPGD46QRK7WJZT71", undefined],
  ["filter", "KUBE-SVC-XPGD46QRK7WJZT7O", undefined],
  ["nat", "KUBE-SERVICES", "kube-proxy"],
  ["filter", "KUBE-FORWARD", "kube-proxy"],
  ["nat", "KUBE-FORWARD", undefined],
  ["mangle", "KUBE-PROXY-CANARY", "kube-proxy"],
  ["raw", "KUBE-PROXY-CANARY", undefined],
  ["filter", "KUBE-FIREWALL", "kubelet"],
  ["nat", "KUBE-MARK-DROP", "kubelet"],
  ["mangle", "KUBE-IPTABLES-HINT", "kubelet"],
  ["nat", "KUBE-KUBELET-CANARY", "kubelet"],
  ["filter", "KUBE-POD-FW-XPGD46QRK7WJZT7O", "kube-router"],
  ["filter", "KUBE-ROUTER-INPUT", "kube-router"],
  ["nat", "CNI-HOSTPORT-DNAT", "portmap"],
  ["filter", "cali-FORWARD", "calico"],
  ["filter", "CILIUM_FORWARD", "cilium"],
  ["nat", "OLD_CILIUM_POST_nat", "cilium"],
  ["nat", "PREROUTING", undefined],
];

for (const [table, chain, owner] of CASES) {
  Deno.test(`knownChain() names the owner of ${chain} in ${table}: ${owner ?? "none that it knows"}`, () => {
    assertEquals(knownChain(table, chain)?.owner, owner);
    assertEquals(isKubeProxyChain(table, chain), owner === "kube-proxy");
  });
}

Deno.test("isOfOtherModes() recognizes chains of kube-proxy's ipvs and userspace modes only", () => {
  const chains = ["KUBE-NODE-PORT", "KUBE-PORTALS-HOST", "KUBE-SERVICES", "KUBE-IPVS-FILTER"];
  assertEquals(chains.map((chain) => isOfOtherModes("nat", chain)), [true, true, false, false]);
  assertEquals(isOfOtherModes("filter", "KUBE-IPVS-FILTER"), true);
});
