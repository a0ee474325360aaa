import { assert, assertEquals } from "@std/assert";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { baseChains, baseJumps, isServiceChain } from "./base_chains.ts";
import { ALL_FEATURES, type IptablesRenderOptions } from "./render_options.ts";

const OPTIONS = defaultRenderOptions("IPv4");

function rules(table: "filter" | "nat", chain: string, options: Partial<IptablesRenderOptions>) {
  return baseChains({ ...OPTIONS, ...options })[table].get(chain)?.map(ruleText);
}

Deno.test("baseJumps() leave KUBE-FIREWALL to the kubelet if it has no rule of kube-relay", () => {
  assertEquals(baseJumps(OPTIONS).filter(({ isShared }) => isShared).length, 2);
  for (const options of [defaultRenderOptions("IPv6"), { ...OPTIONS, localhostNodePorts: false }]) {
    assertEquals(baseJumps(options).filter(({ isShared }) => isShared), []);
    assertEquals(baseChains(options).filter.has("KUBE-FIREWALL"), false);
  }
});

Deno.test("baseJumps() and baseChains() have no comment if the kernel has none", () => {
  const features = { ...ALL_FEATURES, comment: false };
  const options = { ...OPTIONS, features };
  for (const { rule } of baseJumps(options)) assertEquals(rule.comment, undefined);
  for (const chains of Object.values(baseChains(options))) {
    for (const rule of [...chains.values()].flat()) assertEquals(rule.comment, undefined);
  }
});

Deno.test("baseChains() drop invalid packets unless conntrack is liberal, and count them", () => {
  const dropped = (options: Partial<IptablesRenderOptions>) =>
    rules("filter", "KUBE-FORWARD", options)?.filter((rule) => rule.endsWith("-j DROP"));
  assertEquals(dropped({}), ["-m conntrack --ctstate INVALID -j DROP"]);
  assertEquals(dropped({ beLiberal: true }), []);
  const [counted = ""] = dropped({ features: { ...ALL_FEATURES, nfacct: true } }) ?? [];
  assert(counted.includes("-m nfacct --nfacct-name ct_state_invalid_dropped_pkts"));
});

Deno.test("isServiceChain() recognizes chains of kube-proxy and kube-relay, and no others", () => {
  const ours = ["KUBE-SVC-A", "KUBE-SEP-A", "KUBE-XLB-A", "KUBE-VIP-a", "KUBE-HP-a"];
  assertEquals(ours.map((name) => isServiceChain("nat", name)), [true, true, true, true, true]);
  const others = [
    "KUBE-SERVICES",
    "KUBE-FIREWALL",
    "KUBE-KUBELET-CANARY",
    "KUBE-POD-FW-X",
    "DOCKER",
  ];
  for (const name of others) {
    assertEquals([isServiceChain("nat", name), isServiceChain("filter", name)], [false, false]);
  }
});
