/**
 * Tests that kube-router's network policy rules in a real kernel are found and removed, and that
 * foreign rules next to them stay.
 */
import { assert, assertEquals } from "@std/assert";
import { removeKubeRouterPolicies } from "../../backends/netfilter/foreign/remove_foreign.ts";
import { IP_FAMILIES, type IpFamily } from "../../lib/net/ip_address.ts";
import { kubeProxyIptablesRules } from "../support/builders/kube_proxy_rules.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { createUsedNode, type RulesNode, VARIANTS } from "../support/stages/rules_node.ts";

interface RouterOptions {
  readonly family: IpFamily;
}

const POD_CHAIN = "KUBE-POD-FW-XPGD46QRK7WJZT7O";
const POLICY_CHAIN = "KUBE-NWPLCY-SXIVWICOYRO3J4NJ";
const TOP = {
  INPUT: "KUBE-ROUTER-INPUT",
  FORWARD: "KUBE-ROUTER-FORWARD",
  OUTPUT: "KUBE-ROUTER-OUTPUT",
};

const ADDRESSES = {
  IPv4: {
    pod: "10.42.0.9",
    other: "10.42.1.7",
    services: "10.43.0.0/16",
    ping: "icmp -m icmp --icmp-type 8",
  },
  IPv6: {
    pod: "fd42::9",
    other: "fd42::1:7",
    services: "fd43::/112",
    ping: "icmpv6 -m icmp6 --icmpv6-type 128",
  },
} as const;

/** The name of a set in a family. */
function routerSetName(family: IpFamily, name: string): string {
  return family === "IPv6" ? `inet6:${name}` : name;
}

/** Sets of policies and, with other names, of routes; input of `ipset restore`. */
function kubeRouterSets({ family }: RouterOptions): string {
  const { pod, other } = ADDRESSES[family];
  const of = (name: string) => routerSetName(family, name);
  const create = (name: string, type: string) =>
    `create ${of(name)} ${type} family ${family === "IPv6" ? "inet6" : "inet"}\n`;
  return create("KUBE-DST-XPGD46QRK7WJZT7O", "hash:ip") +
    create("KUBE-SRC-SXIVWICOYRO3J4NJ", "hash:ip") +
    create("kube-router-local-pods", "hash:ip") +
    `add ${of("KUBE-DST-XPGD46QRK7WJZT7O")} ${pod}\nadd ${
      of("KUBE-SRC-SXIVWICOYRO3J4NJ")
    } ${other}\n`;
}

/** Sets of kube-router's routes, which are no concern of policies. */
function kubeRouterRouteSets({ family }: RouterOptions): string {
  const type = `hash:net family ${family === "IPv6" ? "inet6" : "inet"}`;
  return `create ${routerSetName(family, "kube-router-pod-subnets")} ${type}\n`;
}

/** Chains of policies; input of `iptables-restore --noflush`, after {@linkcode kubeRouterSets}. */
function kubeRouterPolicyRules({ family }: RouterOptions): string {
  const { pod, services, ping } = ADDRESSES[family];
  const set = (name: string) => routerSetName(family, name);
  const match = `-m set --match-set ${set("KUBE-SRC-SXIVWICOYRO3J4NJ")} src -m set --match-set ${
    set("KUBE-DST-XPGD46QRK7WJZT7O")
  } dst -p tcp -m tcp --dport 80`;
  const chains = [
    ...Object.values(TOP),
    ...["KUBE-NWPLCY-COMMON", "KUBE-NWPLCY-DEFAULT", "KUBE-NWPLCY-TAIL", POD_CHAIN, POLICY_CHAIN],
  ];
  const jumps = Object.values(TOP).flatMap((chain) => [
    `-A ${chain} -s ${pod} -m comment --comment "rule to jump traffic from POD name:web-1" -j ${POD_CHAIN}`,
    `-A ${chain} -m comment --comment "jump to tail -j KUBE-FORWARD" -j KUBE-NWPLCY-TAIL`,
    `-A ${chain} -m mark --mark 0x20000/0x20000 -j ACCEPT`,
  ]);
  return `*filter
${chains.map((chain) => `:${chain} - [0:0]`).join("\n")}
${
    Object.entries(TOP).map(([hook, chain]) =>
      `-I ${hook} 1 -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j ${chain}`
    ).join("\n")
  }
-A ${TOP.INPUT} -d ${services} -j RETURN
-A ${TOP.FORWARD} -d ${pod} -m physdev --physdev-is-bridged -j ${POD_CHAIN}
${jumps.join("\n")}
-A KUBE-NWPLCY-COMMON -m conntrack --ctstate INVALID -j DROP
-A KUBE-NWPLCY-COMMON -p ${ping} -j ACCEPT
-A KUBE-NWPLCY-DEFAULT -j MARK --set-xmark 0x10000/0x10000
-A KUBE-NWPLCY-TAIL -m mark --mark 0x20000/0x20000 -j ACCEPT
-A KUBE-NWPLCY-TAIL -m set ! --match-set ${set("kube-router-local-pods")} dst -d ${pod} -j REJECT
-A ${POD_CHAIN} -j KUBE-NWPLCY-COMMON
-A ${POD_CHAIN} -s ${pod} -j KUBE-NWPLCY-DEFAULT
-A ${POD_CHAIN} -d ${pod} -j ${POLICY_CHAIN}
-A ${POD_CHAIN} -m mark ! --mark 0x10000/0x10000 -j NFLOG --nflog-group 100
-A ${POD_CHAIN} -m mark ! --mark 0x10000/0x10000 -j REJECT
-A ${POLICY_CHAIN} ${match} -j MARK --set-xmark 0x10000/0x10000
-A ${POLICY_CHAIN} ${match} -m mark --mark 0x10000/0x10000 -j RETURN
COMMIT
`;
}

/** Chains of kube-router's service proxy and of other enforcers, which all have to stay. */
function otherEnforcerRules(): string {
  return `*nat
:KUBE-ROUTER-HAIRPIN - [0:0]
-A POSTROUTING -j KUBE-ROUTER-HAIRPIN
COMMIT
*filter
:KUBE-ROUTER-SERVICES - [0:0]
:KUBE-POD-FW-SHORT - [0:0]
:cali-FORWARD - [0:0]
:CILIUM_FORWARD - [0:0]
-A INPUT -j KUBE-ROUTER-SERVICES
-A FORWARD -j cali-FORWARD
-A FORWARD -j CILIUM_FORWARD
-A FORWARD -j KUBE-POD-FW-SHORT
-A cali-FORWARD -m mark --mark 0x10000/0x10000 -j ACCEPT
COMMIT
`;
}

/** The table of `--use-nftables-for-netpol`, input of `nft -f -`. */
function kubeRouterNftRules({ family }: RouterOptions): string {
  const [of, table] = family === "IPv6"
    ? ["ip6", "kube-router-filter-ipv6"]
    : ["ip", "kube-router-filter-ipv4"];
  const { pod } = ADDRESSES[family];
  return `table ${of} ${table} {
  set KUBE-DST-XPGD46QRK7WJZT7O { type ipv${family.slice(-1)}_addr ; elements = { ${pod} } ; }
  chain ${POD_CHAIN} { meta mark & 0x10000 == 0 reject ; }
  chain KUBE-ROUTER-FORWARD { type filter hook forward priority filter ; ${of} daddr ${pod} jump ${POD_CHAIN} ; }
}
`;
}

const test = testNeeding("leftovers of kube-router's policies in a real kernel", [
  ...netnsRequirements(),
  ...["iptables-nft", "iptables-legacy", "nft", "ipset"].map(program),
]);

/** Rules of all programs except kube-router's policy controller. */
async function createBusyNode(): Promise<RulesNode> {
  const node = await createUsedNode();
  for (const family of IP_FAMILIES) {
    await node.load("ipset restore", kubeRouterRouteSets({ family }));
    for (const variant of VARIANTS) {
      await node.loadIptables(variant, family, kubeProxyIptablesRules({ family }));
      await node.loadIptables(variant, family, otherEnforcerRules());
    }
  }
  return node;
}

/** The policy rules: in both variants of iptables, and in nftables. */
async function loadPolicies(node: RulesNode): Promise<void> {
  for (const family of IP_FAMILIES) {
    await node.load("ipset restore", kubeRouterSets({ family }));
    for (const variant of VARIANTS) {
      await node.loadIptables(variant, family, kubeRouterPolicyRules({ family }));
    }
    await node.load("nft -f -", kubeRouterNftRules({ family }));
  }
}

function remove(node: RulesNode, { dryRun = false } = {}) {
  return removeKubeRouterPolicies(node.edges, { dryRun });
}

test("removeKubeRouterPolicies() leaves everything else as it was, in both families and variants", async () => {
  await using node = await createBusyNode();
  const before = await node.rules();
  await loadPolicies(node);
  const loaded = await node.rules();
  const shown = await remove(node, { dryRun: true });
  assertEquals(await node.rules(), loaded, "a dry run changes nothing");
  const { removed, failed, kept } = await remove(node);
  assertEquals({ failed, kept }, { failed: [], kept: undefined });
  assertEquals(removed, shown.removed);
  for (
    const what of [
      "ipset inet6:KUBE-SRC-SXIVWICOYRO3J4NJ",
      "table ip6 kube-router-filter-ipv6 (nftables)",
      "rule of FORWARD in filter that jumps to KUBE-ROUTER-FORWARD (ip6tables-legacy)",
    ]
  ) assert(removed.includes(what), `${what} is missing in ${removed.join("\n")}`);
  assertEquals(await node.rules(), before);
  assertEquals(await remove(node), { removed: [], failed: [] }, "nothing is left to do");
});
