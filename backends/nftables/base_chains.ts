/**
 * The permanent chains, from the first sync to the last.
 *
 * ```
 *  arrives ─► nat-prerouting ─┬─► services ─► looks up ─┬─► off-cluster-2, masquerade-3 … ─► DNAT
 *  is sent ─► nat-output ─────┘                         ├─► reject-all, drop
 *                                                       └─► nothing of ours: goes on
 *   … no other NAT matched ─┬─► unclaimed-prerouting ─┬─► unclaimed ─► reject-all, drop
 *                           └─► unclaimed-output ─────┘
 *  leaves ──► nat-postrouting ─► masquerade
 * ```
 *
 * All hooks are of type nat: the kernel asks them for the first packet of a connection and never
 * again. kube-proxy refuses in chains of type filter, which every packet passes; since kernel 5.9,
 * `reject` works in prerouting as well, so one look-up decides everything. Pure.
 *
 * @module
 */
import type { NftChain } from "../netfilter/nft/nft_objects.ts";
import { type ChainContext, REJECT_CHAIN } from "./chain_spec.ts";
import { EXPRESSIONS, PORT } from "./expressions.ts";
import { masqueradeMark, type NftablesRenderOptions } from "./render_options.ts";
import { SLOT_BIT, slotText } from "./slots.ts";

/**
 * An empty chain whose name is the version of the layout. A table with another name was written by
 * another version, and is replaced as a whole.
 */
export const LAYOUT_MARK = "layout-3";

/** The chain of load balancer addresses with source ranges. */
export const SOURCE_RANGES_CHAIN = "check-source-ranges";

/** The chain that protects loopback addresses from other hosts. */
export const LOOPBACK_GUARD = "loopback-guard";

/** All of them. */
export function baseChains({ options }: Pick<ChainContext, "options">): readonly NftChain[] {
  const { family, features } = options;
  const { destination, source, table, loopback } = EXPRESSIONS[family];
  const front = `${destination} . ${PORT}`;
  const guard: NftChain = {
    name: LOOPBACK_GUARD,
    hook: "type filter hook prerouting priority -110",
    // With route_localnet set, a neighbour could reach programs that listen on 127.0.0.1
    // (CVE-2020-8558).
    rules: [`iifname != "lo" ${destination} ${loopback} drop`],
  };
  return [
    { name: LAYOUT_MARK, rules: [] },
    { name: REJECT_CHAIN, rules: [features.reject ? "reject" : "drop"] },
    {
      name: SOURCE_RANGES_CHAIN,
      // By verdicts: the map of chains leads here, and the kernel takes no rules that could go round.
      rules: [`${front} . ${source} @source-ranges ${front} vmap @admitted`, "drop"],
    },
    { name: "services", rules: serviceRules(options) },
    { name: "unclaimed", rules: unclaimedRules(options) },
    ...(options.localhostNodePorts && table === "ip" ? [guard] : []),
    {
      name: "nat-prerouting",
      hook: "type nat hook prerouting priority -100",
      rules: ["jump services"],
    },
    { name: "nat-output", hook: "type nat hook output priority -100", rules: ["jump services"] },
    // After the DNAT of all other programs, after which the kernel asks no further chain: a cluster
    // IP that another proxy serves must not be refused.
    {
      name: "unclaimed-prerouting",
      hook: "type nat hook prerouting priority -90",
      rules: ["jump unclaimed"],
    },
    {
      name: "unclaimed-output",
      hook: "type nat hook output priority -90",
      rules: ["jump unclaimed"],
    },
    {
      name: "nat-postrouting",
      hook: "type nat hook postrouting priority 100",
      rules: postroutingRules(options),
    },
  ];
}

/**
 * Uses a number instead of a verdict in the map itself: for each new element with `goto`, the
 * kernel checks all chains that any element of its map leads to, 10 ms at 44,000 Services.
 */
function leadsTo(key: string, map: string): string {
  return `meta priority set ${key} map @${map} meta priority vmap @numbered-chains`;
}

function serviceRules(options: NftablesRenderOptions): readonly string[] {
  const { destination, loopback } = EXPRESSIONS[options.family];
  const nodePorts = leadsTo(PORT, "node-ports");
  const notLoopback = options.localhostNodePorts ? "" : `${destination} != ${loopback} `;
  return [
    leadsTo(`${destination} . ${PORT}`, "service-ips"),
    options.nodePortAddresses.kind === "all"
      ? `fib daddr type local ${notLoopback}${nodePorts}`
      : `${destination} @node-port-ips ${nodePorts}`,
  ];
}

function unclaimedRules({ family }: NftablesRenderOptions): readonly string[] {
  const { destination } = EXPRESSIONS[family];
  // A bound address, such as that of a DNS cache on the node, belongs to its owner.
  const elsewhere = "fib daddr type != local";
  return [
    `${destination} @cluster-ips ${elsewhere} goto ${REJECT_CHAIN}`,
    `${destination} @service-cidrs ${elsewhere} drop`,
  ];
}

function postroutingRules(options: NftablesRenderOptions): readonly string[] {
  const { source, destination } = EXPRESSIONS[options.family];
  const mark = masqueradeMark(options);
  return [
    `ct status dnat meta priority and ${slotText(SLOT_BIT)} != 0 meta priority set 0`,
    `meta mark and ${mark} == ${mark} meta mark set meta mark xor ${mark} masquerade fully-random`,
    // An endpoint that is sent its own packet would answer itself, past the proxy.
    `ct status dnat ${source} . ${destination} @hairpin masquerade fully-random`,
  ];
}
