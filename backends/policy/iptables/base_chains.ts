/**
 * The chains of NetworkPolicy that do not depend on single lists, in table filter. Pure.
 *
 * ```
 * FORWARD, first ─────────────────── KUBE-RELAY-POLICY
 * OUTPUT, first ── …-POLICY-OUT ──┬─ (from the node itself) → RETURN to OUTPUT
 *                                 └─ KUBE-RELAY-POLICY
 *
 * KUBE-RELAY-POLICY                                RETURN here leads back to FORWARD or OUTPUT
 *   established, related → RETURN
 *   source isolated ── jump ─ …-POLICY-EGRESS ─ goto …-EGRESS-<last bits>
 *   │                          ├ goto KUBE-RELAY-<list> ── allowed → RETURN ─┐
 *   │                          │   └ goto …-NO-EGRESS                        │
 *   │                          └ goto …-NO-EGRESS ── to itself → RETURN ─────┤
 *   │                              └ (log) goto …-DENY-OUT → REJECT or DROP  │
 *   ├────────────────────────────────────────────────────────────────────────┘
 *   destination isolated ── goto …-POLICY-INGRESS    the same with …-NO-INGRESS; RETURN leads out
 * ```
 *
 * A chain entered by goto returns to the caller of the last jump. A packet that a list allows for egress
 * therefore continues to ingress, and an allowed one continues in FORWARD. These chains accept nothing,
 * because rules of other programs may still deny the packet. A denied packet ends in DENY and meets no other
 * list.
 *
 * Packets that IPVS forwards leave by OUTPUT with the address of their sender. There is no chain in
 * INPUT: traffic between a pod and its own node is always allowed.
 *
 * @module
 */
import {
  addressAt,
  addressNumber,
  type IpAddress,
  type IpFamily,
} from "../../../lib/net/ip_address.ts";
import type { Direction, RuleListId } from "../../../lib/policy/policy_plan.ts";
import {
  quoteWord,
  type Rule,
  ruleText,
  type WrittenChain,
} from "../../netfilter/iptables/iptables_objects.ts";
import { DIRECTIONS, type LayoutSettings } from "../policy_target.ts";

const ENTRY = "KUBE-RELAY-POLICY";
const OUTPUT_ENTRY = `${ENTRY}-OUT`;
const DENY = `${ENTRY}-DENY`;
/** The chains that count denied packets and drop or reject them. */
export const DENY_COUNTED: Readonly<Record<Direction, string>> = {
  egress: `${DENY}-OUT`,
  ingress: `${DENY}-IN`,
};
const SHARED_LINK: Readonly<Record<Direction, string>> = {
  egress: `${ENTRY}-LINK-OUT`,
  ingress: `${ENTRY}-LINK-IN`,
};

/** The chains that lead on by the last bits of a pod's address. */
const DISPATCH: Readonly<Record<Direction, string>> = {
  egress: `${ENTRY}-EGRESS`,
  ingress: `${ENTRY}-INGRESS`,
};
/** The numbers of these bits. A first packet meets the fewest rules among 110 pods, and few among 10. */
const BRANCHES = [0, 1, 2, 3, 4, 5, 6, 7] as const;
/** The chains for packets that no list allows. */
export const DENIED: Readonly<Record<Direction, string>> = {
  egress: `${ENTRY}-NO-EGRESS`,
  ingress: `${ENTRY}-NO-INGRESS`,
};

/** The side of a packet at which the pod is, as `src` or `dst`, and the other side. */
const OWN_SIDE = { egress: "src", ingress: "dst" } as const;
export const PEER_SIDE = { egress: "dst", ingress: "src" } as const;

/** The jumps to the own chains. They have to come first: packets accepted before them bypass policies. */
export const BASE_JUMPS = [
  { from: "FORWARD", rule: `-j ${ENTRY}` },
  { from: "OUTPUT", rule: `-j ${OUTPUT_ENTRY}` },
] as const;

/** Whether a chain of table filter is one of this data plane, of this release or an earlier one. */
export function isPolicyChain(name: string): boolean {
  return name.startsWith(ENTRY) || /^KUBE-RELAY-([EI]-.+|[a-z2-7]{16})$/.test(name);
}

/**
 * The chains whose rules belong to pods, and their last rules. The order of the others does not matter,
 * because they match different packets.
 */
export const POD_CHAINS: ReadonlyMap<string, string> = new Map(
  DIRECTIONS.flatMap((each) => [
    ...BRANCHES.map((branch) => [branchName(each, branch), goTo(DENIED[each])] as const),
    [DENIED[each], goTo(DENY_COUNTED[each])],
  ]),
);

/**
 * The chain with one rule for each isolated pod whose address ends like this one, which leads to its list.
 * The kernel has no map from an address to a chain for iptables.
 */
export function dispatchChain(direction: Direction, address: IpAddress): string {
  return branchName(direction, Number(addressNumber(address) % BigInt(BRANCHES.length)));
}

function branchName(direction: Direction, branch: number): string {
  return `${DISPATCH[direction]}-${branch}`;
}

function dispatchRules(direction: Direction, family: IpFamily): readonly string[] {
  const start = family === "IPv4" ? "0.0.0." : "::";
  const option = direction === "egress" ? "-s" : "-d";
  return BRANCHES.map((branch) =>
    `${option} ${addressAt(BigInt(branch), family)}/${start}${BRANCHES.length - 1} ` +
    goTo(branchName(direction, branch))
  );
}

/** The name of the chain of a list. */
export function listChainName(id: RuleListId): string {
  return `KUBE-RELAY-${id}`;
}

/** The set of isolated pods. For packets of other pods, one lookup in it is the only cost. */
export function isolatedSet(direction: Direction, family: IpFamily): string {
  return `${setPrefix(family)}-${direction.toUpperCase()}`;
}

/** The set of all local pods; empty unless there are closed ranges. */
export function knownSet(family: IpFamily): string {
  return `${setPrefix(family)}-KNOWN`;
}

/** Returns the prefix of the set names of a family: both families share the names. */
export function setPrefix(family: IpFamily): string {
  return family === "IPv4" ? "KUBE-RELAY-4" : "KUBE-RELAY-6";
}

/** The match of a set. */
export function matchSet(name: string, sides: string): readonly string[] {
  return ["set", "--match-set", name, sides];
}

/** A rule that sends every packet to a chain. */
export function goTo(chain: string): string {
  return `-g ${chain}`;
}

/** The chains that do not depend on pods. */
export function baseChains(settings: LayoutSettings): readonly WrittenChain[] {
  const { family, deny } = settings;
  const judging = DIRECTIONS.flatMap((direction) => judgingRules(direction, settings));
  const links = DIRECTIONS.filter((each) => linkRules(each, settings).length > 0);
  return [
    {
      name: ENTRY,
      rules: [
        "-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
        ...(family === "IPv6" ? NEIGHBOUR_DISCOVERY : []),
        ...judging,
      ],
    },
    {
      name: OUTPUT_ENTRY,
      rules: ["-m addrtype --src-type LOCAL -j RETURN", `-j ${ENTRY}`],
    },
    ...links.map((each) => ({
      name: SHARED_LINK[each],
      rules: [...ASSIGNMENT_RULES[family], goTo(DENY_COUNTED[each])],
    })),
    ...DIRECTIONS.map((each) => ({ name: DISPATCH[each], rules: dispatchRules(each, family) })),
    ...DIRECTIONS.map((each) => ({ name: DENY_COUNTED[each], rules: [goTo(DENY)] })),
    { name: DENY, rules: deny.action === "drop" ? ["-j DROP"] : rejectRules(settings) },
  ];
}

function judgingRules(direction: Direction, settings: LayoutSettings): readonly string[] {
  const { family, closedRanges } = settings;
  const side = OWN_SIDE[direction];
  const closed = closedRanges.map((range): Rule => ({
    [direction === "egress" ? "source" : "destination"]: { value: range },
    extensions: [["set", "!", ...matchSet(knownSet(family), side).slice(1)]],
    target: [DENY_COUNTED[direction]],
    isGoto: true,
  }));
  const isolated: Rule = {
    extensions: [matchSet(isolatedSet(direction, family), side)],
    target: [DISPATCH[direction]],
    ...(direction === "ingress" && { isGoto: true }),
  };
  return [...closed.map(ruleText), ...linkRules(direction, settings), ruleText(isolated)];
}

/** Returns the rules for packets on a link of pods that no address of a pod identifies. */
function linkRules(
  direction: Direction,
  { family, sharedLinks }: LayoutSettings,
): readonly string[] {
  if (direction === "egress") {
    if (family === "IPv4") return [];
    return sharedLinks.egress.map((link) =>
      `-s fe80::/10 -i ${quoteWord(link)} -j ${SHARED_LINK.egress}`
    );
  }
  const matches = family === "IPv4"
    ? [["", " -m addrtype --dst-type BROADCAST,MULTICAST"]] as const
    : [["-d ff00::/8 ", ""], ["-d fe80::/10 ", ""]] as const;
  return sharedLinks.ingress.flatMap((link) =>
    matches.map(([destination, type]) =>
      `${destination}-o ${quoteWord(link)}${type} -g ${SHARED_LINK.ingress}`
    )
  );
}

/**
 * The packets by which pods ask for routers, get addresses and join groups. Router advertisements are
 * denied: they come from the node, which is no port of its own bridge. By one of them, a pod gives
 * another pod a second address, which no object of the API names and no rule judges.
 */
const ASSIGNMENT_RULES: Readonly<Record<IpFamily, readonly string[]>> = {
  IPv4: ["-p udp -m udp --sport 67:68 --dport 67:68 -j RETURN"],
  IPv6: [
    "-p ipv6-icmp -m icmp6 --icmpv6-type 133 -m hl --hl-eq 255 -j RETURN",
    ...[130, 131, 132, 143].map((type) =>
      `-p ipv6-icmp -m icmp6 --icmpv6-type ${type} -m hl --hl-eq 1 -j RETURN`
    ),
    "-p udp -m udp --sport 546:547 --dport 546:547 -j RETURN",
  ],
};

/** A late segment of an allowed connection: a reset would end that connection. */
const DROP_INVALID = "-m conntrack --ctstate INVALID -j DROP";

function rejectRules(
  { family, sharedLinks: { ingress, egress } }: LayoutSettings,
): readonly string[] {
  const [icmp, prohibited] = family === "IPv4"
    ? ["icmp", "icmp-admin-prohibited"]
    : ["icmp6", "icmp6-adm-prohibited"];
  return [
    DROP_INVALID,
    // A reset for a packet between ports of a bridge bears the translated address, which the client
    // does not know. An ICMP error quotes the packet, and the kernel translates the quotation. Only a
    // client that waits for its first answer takes it for a refusal, some of them at their next attempt.
    ...[...new Set([...ingress, ...egress])].map(quoteWord).map((link) =>
      `-i ${link} -o ${link} -p tcp -m conntrack --ctstate DNAT ` +
      `-m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j REJECT --reject-with ${icmp}-port-unreachable`
    ),
    "-p tcp -j REJECT --reject-with tcp-reset",
    `-j REJECT --reject-with ${prohibited}`,
  ];
}

/**
 * Neighbour solicitations and advertisements between two pods of a bridge pass FORWARD. A routed packet
 * has fewer than 255 hops left, so this opens no path to other nodes.
 */
const NEIGHBOUR_DISCOVERY = [135, 136].map((type) =>
  `-p ipv6-icmp -m icmp6 --icmpv6-type ${type} -m hl --hl-eq 255 -j RETURN`
);
