/**
 * The chains of NetworkPolicy that do not depend on single lists, in nftables. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../../lib/net/ip_address.ts";
import type { Direction } from "../../../lib/policy/policy_plan.ts";
import { type NftChain, nftFamily } from "../../netfilter/nft/nft_objects.ts";
import { DIRECTIONS, type LayoutSettings } from "../policy_target.ts";

/** The maps from the address of a pod to its chain. */
export const MAPS: Readonly<Record<Direction, string>> = { ingress: "to-pod", egress: "from-pod" };

/** Returns the words of nft for the addresses of a family. */
export function words(
  family: IpFamily,
): Readonly<Record<"destination" | "source" | "type", string>> {
  const ip = nftFamily(family);
  const type = family === "IPv4" ? "ipv4_addr" : "ipv6_addr";
  return { source: `${ip} saddr`, destination: `${ip} daddr`, type };
}

/** The chain that counts what is denied in a direction, and denies it. */
export function denyChain(direction: Direction): string {
  return `deny-${direction}`;
}

/** The chains with a hook, and the chains that deny. */
export function baseChains(settings: LayoutSettings): readonly NftChain[] {
  const { family, deny } = settings;
  const chains = DIRECTIONS.flatMap((direction) => {
    const rules = judgingRules(direction, settings);
    const links = linkRules(settings, direction);
    const priority = direction === "egress" ? -1 : 0;
    return ["forward", "output"].map((hook): NftChain => ({
      name: hook === "forward" ? direction : `${direction}-output`,
      hook: `type filter hook ${hook} priority ${priority}`,
      // Packets that IPVS forwards leave by the output hook with the source of their sender.
      rules: hook === "forward"
        ? rules.toSpliced(-1, 0, ...links)
        : rules.toSpliced(1, 0, "fib saddr type local accept"),
    }));
  });
  const deniedRules = deny.action === "reject" ? rejectRules(settings) : ["drop"];
  const shared = DIRECTIONS.filter((direction) => linkRules(settings, direction).length > 0);
  return [
    ...chains,
    ...shared.map((direction) => sharedLinkChain(family, direction)),
    ...DIRECTIONS.map((each) => ({ name: denyChain(each), rules: ["counter goto deny"] })),
    { name: "deny", rules: deniedRules },
  ];
}

function rejectRules({ family, sharedLinks: { ingress, egress } }: LayoutSettings) {
  const icmp = family === "IPv4" ? "icmp" : "icmpv6";
  return [
    // A late segment of an allowed connection: a reset would end that connection.
    "ct state invalid drop",
    // A reset for a packet between ports of a bridge bears the translated address, which the client
    // does not know. An ICMP error quotes the packet, and the kernel translates the quotation. Only a
    // client that waits for its first answer takes it for a refusal, some of them at their next attempt.
    ...[...new Set([...ingress, ...egress])].map((link) =>
      `iifname "${link}" oifname "${link}" meta l4proto tcp ct status dnat ` +
      `tcp flags & (fin|syn|rst|ack) == syn reject with ${icmp} type port-unreachable`
    ),
    "meta l4proto tcp reject with tcp reset",
    `reject with ${icmp} type admin-prohibited`,
  ];
}

/** Returns the rules for packets on a link of pods that no address of a pod identifies. */
function linkRules(
  { family, sharedLinks }: LayoutSettings,
  direction: Direction,
): readonly string[] {
  const matches = {
    ingress: {
      IPv4: ["ip daddr 224.0.0.0/4", "fib daddr type broadcast"],
      IPv6: ["ip6 daddr ff00::/8", "ip6 daddr fe80::/10"],
    },
    egress: { IPv4: [], IPv6: ["ip6 saddr fe80::/10"] },
  };
  const side = direction === "ingress" ? "oifname" : "iifname";
  return sharedLinks[direction].flatMap((link) =>
    matches[direction][family].map((match) =>
      `${side} "${link}" ${match} goto shared-link-${direction}`
    )
  );
}

/**
 * Accepts the packets by which pods ask for routers, get addresses and join groups. It denies router
 * advertisements: they come from the node, which is no port of its own bridge. By one of them, a pod
 * gives another pod a second address, which no object of the API names and no rule judges.
 */
function sharedLinkChain(family: IpFamily, direction: Direction): NftChain {
  const rules = family === "IPv4" ? ["udp sport 67-68 udp dport 67-68 accept"] : [
    "icmpv6 type 133 ip6 hoplimit 255 accept",
    "icmpv6 type 130-132 ip6 hoplimit 1 accept",
    "icmpv6 type 143 ip6 hoplimit 1 accept",
    "udp sport 546-547 udp dport 546-547 accept",
  ];
  const name = `shared-link-${direction}`;
  return { name, rules: [...rules, `goto ${denyChain(direction)}`] };
}

/**
 * Neighbour solicitations and advertisements between two pods of a bridge pass the forward hook. A
 * routed packet has fewer than 255 hops left, so this opens no path to other nodes.
 */
const NEIGHBOUR_DISCOVERY = "icmpv6 type 135-136 ip6 hoplimit 255 accept";

function judgingRules(
  direction: Direction,
  { family, closedRanges }: LayoutSettings,
): readonly string[] {
  const { source, destination } = words(family);
  const own = direction === "ingress" ? destination : source;
  return [
    "ct state established,related accept",
    ...(family === "IPv6" ? [NEIGHBOUR_DISCOVERY] : []),
    `${source} . ${destination} @itself accept`,
    ...closedRanges.map((range) => `${own} ${range} ${own} != @known goto ${denyChain(direction)}`),
    `${own} vmap @${MAPS[direction]}`,
  ];
}
