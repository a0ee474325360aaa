/**
 * Tests that kube-proxy's leftovers in a real kernel are found and removed, and that foreign rules
 * next to them stay.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { findForeignSoftware } from "../../backends/netfilter/foreign/find_foreign_software.ts";
import { removeKubeProxy } from "../../backends/netfilter/foreign/remove_foreign.ts";
import { IP_FAMILIES } from "../../lib/net/ip_address.ts";
import type { BackendMode } from "../../lib/proxy/backend.ts";
import {
  ipvsSetName,
  kubeProxyIptablesRules,
  kubeProxyIpvsRules,
  kubeProxyIpvsSets,
  kubeProxyNftRules,
} from "../support/builders/kube_proxy_rules.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { createUsedNode, RulesNode, VARIANTS } from "../support/stages/rules_node.ts";
import { program, testNeeding } from "../support/requirement.ts";

const test = testNeeding("leftovers of kube-proxy in a real kernel", [
  ...netnsRequirements(),
  ...["iptables-nft", "iptables-legacy", "nft", "ipset"].map(program),
]);

/** Removes kube-proxy's leftovers from a node. */
function remove(node: RulesNode, options: { dryRun?: boolean; mode?: BackendMode } = {}) {
  return removeKubeProxy(node.edges, { dryRun: false, ...options });
}

for (const variant of VARIANTS) {
  test(`removeKubeProxy() leaves all foreign rules as they were: iptables-${variant}`, async () => {
    await using node = await createUsedNode([variant]);
    const before = await node.rules();
    for (const family of IP_FAMILIES) {
      await node.loadIptables(variant, family, kubeProxyIptablesRules({ family, services: 30 }));
    }
    const loaded = await node.rules();
    const shown = await remove(node, { dryRun: true });
    assertEquals(await node.rules(), loaded, "a dry run changes nothing");
    assertStringIncludes(shown.commands!.join(""), "-X KUBE-SVC-");
    const { removed, failed, kept } = await remove(node);
    assertEquals({ failed, kept }, { failed: [], kept: undefined });
    assertEquals(removed, shown.removed);
    assertEquals(await node.rules(), before);
    assertEquals(await remove(node), { removed: [], failed: [] }, "nothing is left to do");
    assertEquals(await node.rules(), before);
  });
}

test("removeKubeProxy() removes ipvs mode's rules and sets of both families, and nftables' tables", async () => {
  await using node = await createUsedNode();
  const before = await node.rules();
  for (const family of IP_FAMILIES) {
    await node.load("ipset restore", kubeProxyIpvsSets({ family }));
    for (const variant of VARIANTS) {
      await node.loadIptables(variant, family, kubeProxyIpvsRules({ family }));
    }
    await node.load("nft -f -", kubeProxyNftRules({ family, services: 20 }));
  }
  const { removed, failed } = await remove(node);
  assertEquals(failed, []);
  assert(removed.includes("ipset KUBE-6-LOAD-BALANCER-SOURCE-CID"), removed.join("\n"));
  assert(removed.includes("table ip6 kube-proxy (nftables)"), removed.join("\n"));
  assertEquals(await node.rules(), before);
});

test("removeKubeProxy() runs the commands that its dry run shows, as a shell would", async () => {
  await using node = await createUsedNode();
  const before = await node.rules();
  await node.load("ipset restore", kubeProxyIpvsSets({ family: "IPv4" }));
  await node.loadIptables("legacy", "IPv4", kubeProxyIpvsRules({ family: "IPv4" }));
  await node.loadIptables("nft", "IPv6", kubeProxyIptablesRules({ family: "IPv6" }));
  await node.load("nft -f -", kubeProxyNftRules({ family: "IPv4" }));
  const { commands } = await remove(node, { dryRun: true });
  await node.load("sh -e", commands!.join(""));
  assertEquals(await node.rules(), before);
});

test("removeKubeProxy() removes partial and doubled rules, and continues past objects that other programs use", async () => {
  await using node = await createUsedNode();
  const holder =
    `*nat\n:CNI-HOSTPORT-SETMARK - [0:0]\n-A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ\n` +
    `:MINE - [0:0]\n-A MINE -j KUBE-SVC-AAAAAAAAAAAAAAAA\nCOMMIT\n`;
  const halves = `*nat
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]
:KUBE-SVC-NOTKUBEPROXYS - [0:0]
:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]
-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000
-A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA
-A POSTROUTING -j KUBE-POSTROUTING
-A POSTROUTING -j KUBE-POSTROUTING
COMMIT
*filter
:KUBE-SERVICES - [0:0]
-A INPUT -j KUBE-SERVICES
-A INPUT -j KUBE-SERVICES
COMMIT
`;
  await node.loadIptables("nft", "IPv4", halves);
  await node.loadIptables("nft", "IPv4", holder);
  await node.load("ipset restore", kubeProxyIpvsSets({ family: "IPv4" }));
  const inUse =
    "*filter\n-A FORWARD -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT\nCOMMIT\n";
  await node.loadIptables("nft", "IPv4", inUse);
  const { removed, failed, kept = [] } = await remove(node);
  assertEquals(failed.length, 1);
  assertStringIncludes(failed[0]!, "ipset KUBE-CLUSTER-IP: ");
  assertStringIncludes(failed[0]!, "in use");
  assert(removed.includes("ipset KUBE-NODE-PORT-TCP"), removed.join("\n"));
  assertEquals(kept, [
    "chain KUBE-MARK-MASQ in nat: CNI-HOSTPORT-SETMARK marks by it (iptables-nft)",
    "chain KUBE-POSTROUTING in nat: CNI-HOSTPORT-SETMARK marks by it (iptables-nft)",
    "chain KUBE-SVC-AAAAAAAAAAAAAAAA in nat, without rules: MINE refers to it (iptables-nft)",
  ]);
  const rules = await node.rules();
  assertStringIncludes(rules, "-A KUBE-MARK-MASQ -j MARK");
  assertStringIncludes(rules, "-A MINE -j KUBE-SVC-AAAAAAAAAAAAAAAA");
  assertStringIncludes(rules, ":KUBE-SVC-NOTKUBEPROXYS");
  assertEquals(/^:KUBE-(SEP-|SERVICES)/m.test(rules), false, rules);
  assertEquals((await remove(node)).removed, []);
  assertEquals(await node.rules(), rules);
});

test("removeKubeProxy() leaves the objects that the running mode adopts", async () => {
  await using node = await createUsedNode(["nft"]);
  const family = "IPv4";
  await node.loadIptables("nft", family, kubeProxyIptablesRules({ family }));
  await node.load("ipset restore", kubeProxyIpvsSets({ family }));
  // The kubelet chooses the rule set of the mode.
  await node.loadIptables("nft", family, "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n");
  const before = await node.rules();
  await node.loadIptables("legacy", family, kubeProxyIptablesRules({ family }));
  const { removed, failed } = await remove(node, { mode: "ipvs" });
  assertEquals(failed, []);
  assert(removed.length > 0 && removed.every((line) => line.includes("-legacy")), `${removed}`);
  const after = await node.rules();
  assertEquals(
    after.slice(after.indexOf("iptables-nft-save"), after.indexOf("iptables-legacy")),
    before.slice(before.indexOf("iptables-nft-save"), before.indexOf("iptables-legacy")),
  );
  assertStringIncludes(after, `create ${ipvsSetName(family, "KUBE-IPVS-IPS")}`);
});

test("findForeignSoftware() makes no legacy table by looking", async () => {
  await using node = await RulesNode.create();
  const legacyTables = async () =>
    (await node.commands.run("cat", ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"]))
      .stdout;
  assertEquals(await legacyTables(), "");
  const before = await node.rules();
  assertEquals(await findForeignSoftware(node.edges), []);
  await remove(node);
  assertEquals(await legacyTables(), "");
  assertEquals(await node.rules(), before);
});
