/**
 * Tests that kube-router's network policy rules in a real kernel are found and removed, and that
 * foreign rules next to them stay.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { removeKubeRouterPolicies } from "../../backends/netfilter/foreign/remove_foreign.ts";
import { IP_FAMILIES } from "../../lib/net/ip_address.ts";
import { kubeProxyIptablesRules } from "../support/builders/kube_proxy_rules.ts";
import {
  kubeRouterNftRules,
  kubeRouterPolicyRules,
  kubeRouterRouteSets,
  kubeRouterSets,
  otherEnforcerRules,
} from "../support/builders/kube_router_rules.ts";
import { isMissing, program } from "../support/requirement.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { createUsedNode, type RulesNode, VARIANTS } from "../support/stages/rules_node.ts";

const ignore = isMissing("leftovers of kube-router's policies in a real kernel", [
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

Deno.test({
  name:
    "removeKubeRouterPolicies() leaves everything else as it was, in both families and variants",
  ignore,
  async fn() {
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
  },
});
