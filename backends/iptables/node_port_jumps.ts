/**
 * The end of the chains for Service addresses: packets for the node itself continue to the node
 * ports. Pure.
 *
 * @module
 */
import { type IpAddress, isLoopback, parseIpAddress } from "../../lib/net/ip_address.ts";
import type { SharedPlan } from "../../lib/proxy/proxy_plan.ts";
import type { Rule } from "../netfilter/iptables/iptables_objects.ts";
import { LOOPBACK_RANGE, type TreeId, TREES } from "./base_chains.ts";
import type { IptablesRenderOptions } from "./render_options.ts";

const LOOPBACK_V6: IpAddress = parseIpAddress("::1");

/**
 * The rules that lead to a chain for node ports: one for every address of the node, or one for each
 * that was chosen. Never for ::1: IPv6 has no route_localnet, so the reply would not come back.
 */
function nodePortJumps(
  chain: string,
  shared: Pick<SharedPlan, "nodePortAddresses">,
  options: IptablesRenderOptions,
): readonly Rule[] {
  const { family, features, localhostNodePorts, nodePortAddresses } = options;
  const rule: Rule = {
    ...(features.comment && {
      comment: "kubernetes service nodeports; NOTE: this must be the last rule in this chain",
    }),
    target: [chain],
  };
  const allowsLoopback = family === "IPv4" && localhostNodePorts;
  if (nodePortAddresses.kind === "cidrs" || !features.addrtype) {
    return shared.nodePortAddresses
      .filter((address) => allowsLoopback || !isLoopback(address))
      .map((value) => ({ ...rule, destination: { value } }));
  }
  const loopback = family === "IPv6" ? LOOPBACK_V6 : LOOPBACK_RANGE;
  return [{
    ...rule,
    ...(!allowsLoopback && { destination: { value: loopback, not: true } }),
    extensions: [["addrtype", "--dst-type", "LOCAL"]],
  }];
}

/** The rules at the end of a tree's root, after the jumps to its children. */
export function endOfRoot(
  tree: TreeId,
  shared: SharedPlan,
  options: IptablesRenderOptions,
): readonly Rule[] {
  if (tree === "services") return nodePortJumps(TREES.nodePorts.root, shared, options);
  if (tree !== "refusedExternal") return [];
  return nodePortJumps(TREES.refusedNodePorts.root, shared, options);
}
