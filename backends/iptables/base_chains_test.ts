import { assert, assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import { baseChains, baseJumps, isServiceChain } from "./base_chains.ts";
import { ALL_FEATURES, type IptablesRenderOptions } from "./render_options.ts";

const OPTIONS = defaultRenderOptions("IPv4");

/** The chains that a built-in chain leads to, in the order in which packets meet them. */
function order(table: string, from: string, options = OPTIONS): string[] {
  return baseJumps(options).filter((jump) => jump.table === table && jump.from === from)
    .map(({ rule }) => rule.target?.[0] ?? "").toReversed();
}

function rules(table: "filter" | "nat", chain: string, options: Partial<IptablesRenderOptions>) {
  return baseChains({ ...OPTIONS, ...options })[table].get(chain)?.map(ruleText);
}

Deno.test("baseJumps() are in kube-proxy's order", () => {
  assertEquals(order("filter", "INPUT"), [
    ...["KUBE-FIREWALL", "KUBE-PROXY-FIREWALL", "KUBE-NODEPORTS", "KUBE-EXTERNAL-SERVICES"],
  ]);
  assertEquals(order("filter", "FORWARD"), [
    ...["KUBE-PROXY-FIREWALL", "KUBE-FORWARD", "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"],
  ]);
  assertEquals(order("filter", "OUTPUT"), [
    ...["KUBE-FIREWALL", "KUBE-PROXY-FIREWALL", "KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES"],
  ]);
  assertEquals(order("nat", "PREROUTING"), ["KUBE-SERVICES"]);
});

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

Deno.test("baseChains() use the mark of the settings", () => {
  const masqueradeBit = 31;
  assertEquals(rules("nat", "KUBE-MARK-MASQ", { masqueradeBit }), [
    "-j MARK --or-mark 0x80000000",
  ]);
  assertEquals(rules("nat", "KUBE-POSTROUTING", {}), [
    "-m mark ! --mark 0x00004000/0x00004000 -m conntrack --ctstate DNAT -j KUBE-HAIRPIN",
    "-m mark ! --mark 0x00004000/0x00004000 -j RETURN",
    "-j MARK --xor-mark 0x00004000",
    '-m comment --comment "kubernetes service traffic requiring SNAT" -j MASQUERADE --random-fully',
  ]);
});

Deno.test("baseChains() masquerade and forward packets to ranges of cluster IPs, unless pods sent them", () => {
  const services = [parseCidr("10.96.0.0/12"), parseCidr("172.30.0.0/16")];
  const options = { masqueradedRanges: { services, pods: parseCidr("10.0.0.0/9") } };
  const of = (chain: "KUBE-FORWARD" | "KUBE-POSTROUTING") =>
    rules(chain === "KUBE-FORWARD" ? "filter" : "nat", chain, options) ?? [];
  const unmarked = "-m mark ! --mark 0x00004000/0x00004000";
  const [hairpin, ...others] = of("KUBE-POSTROUTING");
  // A pod that reaches itself would keep its source in the rule for the range.
  assert(hairpin?.endsWith("-j KUBE-HAIRPIN"));
  const comment = '-m comment --comment "cluster IPs, not from pods"';
  assertEquals(
    others.slice(0, 2),
    services.map((range) =>
      `! -s 10.0.0.0/9 ${unmarked} -m conntrack --ctstate DNAT --ctorigdst ${range} ${comment} ` +
      "-j MASQUERADE --random-fully"
    ),
  );
  assertEquals(others[2], `${unmarked} -j RETURN`);
  assertEquals(
    of("KUBE-FORWARD").slice(-2),
    services.map((range) =>
      `! -s 10.0.0.0/9 -m conntrack --ctstate DNAT --ctorigdst ${range} ${comment} -j ACCEPT`
    ),
  );
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
