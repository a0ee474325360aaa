/**
 * The chains of ipvs mode and the jumps to them. Services are entries of sets; only
 * `KUBE-FROM-CLUSTER` has rules for single Services.
 *
 * ```
 *            ┌────────────┐    ┌─────────┐  for us  ┌────────────┐
 *  eth0 ───► │ PREROUTING │ ─► │ routing │ ───────► │ INPUT      │ ─► IPVS ─┐ the endpoint
 *            │ mangle (1) │    └─────────┘          │ filter (3) │          │ is chosen
 *            │ nat    (2) │                         └────────────┘          ▼
 *            └────────────┘                                          ┌─────────────┐
 *                          process ─► OUTPUT: mangle (1), nat (2), IPVS, filter ─► │ POSTROUTING │ ─► eth0
 *                                                                    │ nat (4)     │
 *                                                                    └─────────────┘
 * ```
 *
 * 1. mangle `KUBE-PROXY-FIREWALL` drops packets that a load balancer's source ranges do not admit, and
 *    packets to a cluster IP of policy Local without local endpoints. At this point no rule has
 *    changed a destination, and IPVS has not handled packets of the node. (kube-proxy drops them in
 *    table filter, where each load balancer needs one more rule.)
 *    Behind devices with pods that reply for Services themselves (direct server return), it drops
 *    packets with a forged address of the node, and lowers the segment size of replies, so that what
 *    the client sends fits into the tunnel.
 * 2. nat `KUBE-SERVICES` marks packets to be masqueraded. It redirects packets of pods and of the node
 *    from an external address of policy Local to the cluster IP, because one virtual server cannot
 *    distinguish them from packets from outside.
 * 3. filter `KUBE-IPVS-FILTER` rejects packets to other ports of Service addresses. These are also
 *    addresses of the node, so its other listeners would answer there.
 * 4. nat `KUBE-POSTROUTING` masquerades marked packets, and packets of an endpoint to itself.
 *
 * @module
 */
import { type Cidr, parseCidr } from "../../lib/net/cidr.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { FROM_NODE, fromPod, notFromPod } from "../netfilter/local_match.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import type {
  Chain,
  IptablesTable,
  Jump,
  Rule,
  RuleMatch,
} from "../netfilter/iptables/iptables_objects.ts";
import type { ReplyDevice } from "./dsr.ts";
import { IP_SETS, type SetId, setName } from "./ipset_table.ts";
import { type IpvsRenderOptions, masqueradeMark } from "./render_service.ts";

/** The inputs of the rules that all Services share. */
export interface BaseRuleContext {
  readonly options: IpvsRenderOptions;
  readonly localTraffic: LocalTrafficDetector;
  readonly masqueradeInternal: ServicePlan["masqueradeInternal"];
  /** Whether a Service has direct server return. */
  readonly hasDsr: boolean;
  /** For direct server return, by name. */
  readonly replyDevices: readonly ReplyDevice[];
}

/** The chain with one rule for each external address of policy Local; see {@linkcode baseChains}. */
export const FROM_CLUSTER = "KUBE-FROM-CLUSTER";

const LOOPBACK: Readonly<Record<IpFamily, Cidr>> = {
  IPv4: parseCidr("127.0.0.0/8"),
  IPv6: parseCidr("::1/128"),
};
/** The chain of table mangle; see {@linkcode baseChains}. */
export const FIREWALL = "KUBE-PROXY-FIREWALL";
const MARK_MASQ = "KUBE-MARK-MASQ";
const MARK: Rule = { target: [MARK_MASQ] };
const ACCEPT: Rule = { target: ["ACCEPT"] };
const RETURN: Rule = { target: ["RETURN"] };
const DROP: Rule = { target: ["DROP"] };
const NEW: RuleMatch = { extensions: [["conntrack", "--ctstate", "NEW"]] };

function jump(
  table: IptablesTable,
  from: string,
  [comment, chain]: readonly [comment: string, chain: string],
): Jump {
  return { table, from, rule: { comment, target: [chain] } };
}

/** The jumps in the order of insertion. Each is inserted at the top, so the last one comes first. */
export const BASE_JUMPS: readonly Jump[] = [
  ...(["PREROUTING", "OUTPUT"] as const).flatMap((from) => [
    jump("mangle", from, ["kube-proxy firewall rules", FIREWALL]),
    jump("nat", from, ["kubernetes service portals", "KUBE-SERVICES"]),
  ]),
  jump("nat", "POSTROUTING", ["kubernetes postrouting rules", "KUBE-POSTROUTING"]),
  jump("filter", "FORWARD", ["kubernetes forwarding rules", "KUBE-FORWARD"]),
  jump("filter", "INPUT", ["kubernetes ipvs access filter", "KUBE-IPVS-FILTER"]),
  jump("filter", "INPUT", ["kubernetes health check rules", "KUBE-NODE-PORT"]),
];

/**
 * Returns every chain with its rules. `KUBE-FROM-CLUSTER` contains only its first rule, which the
 * rules of single Services follow.
 */
export function baseChains(context: BaseRuleContext): readonly Chain[] {
  const { options, localTraffic, masqueradeInternal, hasDsr, replyDevices } = context;
  const mark = masqueradeMark(options);
  const masquerade: Rule = {
    target: options.features.randomFully ? ["MASQUERADE", "--random-fully"] : ["MASQUERADE"],
  };
  /** `on`: the parts of a packet that are looked up, e.g. `dst,dst`. */
  const inSet = (id: SetId, on: string, then: Rule, match: RuleMatch = {}): Rule => ({
    ...match,
    extensions: [
      ["set", "--match-set", setName(id, options.family), on],
      ...match.extensions ?? [],
    ],
    comment: IP_SETS[id][1],
    ...then,
  });
  const healthChecks = (then: Rule) => inSet("HEALTH-CHECK-NODE-PORT", "dst", then);
  const toFromCluster: Rule = { target: [FROM_CLUSTER] };
  const pod = fromPod(localTraffic);
  // Sources that policy Local does not restrict: the node, and pods if detectable.
  const clusterSources = [...(pod ? [pod] : []), FROM_NODE];
  // Packets of the node: the kernel chose the Service address itself as their source.
  const internalOn = masqueradeInternal === "none" ? "src,dst" : "dst,dst";
  const internal = masqueradeInternal === "off-cluster" ? notFromPod(localTraffic) : undefined;
  const nodePorts = [
    ["TCP", "NODE-PORT-LOCAL-TCP", "NODE-PORT-TCP", "dst"],
    ["UDP", "NODE-PORT-LOCAL-UDP", "NODE-PORT-UDP", "dst"],
    ["SCTP", "NODE-PORT-LOCAL-SCTP-HASH", "NODE-PORT-SCTP-HASH", "dst,dst"],
  ] as const;
  const chains: Readonly<Record<string, Readonly<Record<string, readonly Rule[]>>>> = {
    mangle: {
      [FIREWALL]: [
        inSet("NO-LOCAL-INTERNAL", "dst,dst", DROP, NEW),
        // Existing connections continue, as in the other modes.
        inSet("LOAD-BALANCER-FW", "dst,dst", { target: ["KUBE-SOURCE-RANGES-FIREWALL"] }, NEW),
        ...hasDsr && options.family === "IPv4" ? [NOT_YET_READY] : [],
        ...replyDevices.flatMap((device) => replyRules(device, options.family)),
      ],
      "KUBE-SOURCE-RANGES-FIREWALL": [
        inSet("LOAD-BALANCER-SOURCE-CIDR", "dst,dst,src", RETURN),
        inSet("LOAD-BALANCER-SOURCE-IP", "dst,dst,src", RETURN),
        DROP,
      ],
    },
    nat: {
      "KUBE-SERVICES": [
        { source: { value: LOOPBACK[options.family] }, ...RETURN },
        ...(["EXTERNAL-IP-LOCAL", "LOAD-BALANCER-LOCAL"] as const).flatMap((id) =>
          clusterSources.map((match) => inSet(id, "dst,dst", toFromCluster, match))
        ),
        inSet("LOAD-BALANCER", "dst,dst", { target: ["KUBE-LOAD-BALANCER"] }),
        inSet("CLUSTER-IP", internalOn, MARK, internal),
        inSet("EXTERNAL-IP", "dst,dst", MARK),
        // A port of a Service may also be the number of a node port.
        inSet("SERVED", "dst,dst", ACCEPT),
        { extensions: [["addrtype", "--dst-type", "LOCAL"]], target: ["KUBE-NODE-PORT"] },
      ],
      "KUBE-LOAD-BALANCER": [inSet("LOAD-BALANCER-LOCAL", "dst,dst", RETURN), MARK],
      "KUBE-NODE-PORT": nodePorts.flatMap(([protocol, local, all, on]) => [
        ...clusterSources.map((match) => ({ protocol, ...inSet(local, on, toFromCluster, match) })),
        { protocol, ...inSet(local, on, RETURN) },
        { protocol, ...inSet(all, on, MARK) },
      ]),
      [FROM_CLUSTER]: [{ ...FROM_NODE, ...MARK }],
      "KUBE-POSTROUTING": [
        // Matches only packets to Services: a pod may also connect to itself directly.
        inSet("LOOP-BACK", "dst,dst,src", masquerade),
        { extensions: [["mark", "!", "--mark", `${mark}/${mark}`]], ...RETURN },
        // The mark is removed, because the packet may pass here again inside a tunnel.
        { target: ["MARK", "--xor-mark", mark] },
        { comment: "kubernetes service traffic requiring SNAT", ...masquerade },
      ],
      [MARK_MASQ]: [{ target: ["MARK", "--or-mark", mark] }],
    },
    filter: {
      "KUBE-FORWARD": [
        {
          extensions: [["mark", "--mark", `${mark}/${mark}`]],
          comment: "kubernetes forwarding rules",
          ...ACCEPT,
        },
        {
          extensions: [["conntrack", "--ctstate", "RELATED,ESTABLISHED"]],
          comment: "kubernetes forwarding conntrack rule",
          ...ACCEPT,
        },
      ],
      "KUBE-NODE-PORT": [{ protocol: "TCP", ...healthChecks(ACCEPT) }],
      "KUBE-IPVS-FILTER": [
        inSet("NO-LOCAL-EXTERNAL", "dst,dst", DROP, NEW),
        inSet("SERVED", "dst,dst", RETURN),
        healthChecks(RETURN),
        inSet("IPVS-IPS", "dst", { target: ["REJECT"] }, NEW),
      ],
    },
  };
  return (["mangle", "nat", "filter"] as const).flatMap((table) =>
    Object.entries(chains[table]!).map(([name, rules]) => ({ table, name, rules }))
  );
}

/** Bytes of the headers of IP and TCP, and of the tunnel around them. */
const HEADERS: Readonly<Record<IpFamily, number>> = { IPv4: 20 + 20 + 20, IPv6: 40 + 20 + 40 };

/**
 * A pod that its node is about to set up refuses the tunnel's packet. IPVS would pass that on to the client,
 * which sends again when it hears nothing.
 */
const NOT_YET_READY: Rule = {
  protocol: "ICMP",
  extensions: [["icmp", "--icmp-type", "3/2"]],
  comment: IP_SETS.DSR[1],
  ...DROP,
};

/** For replies of pods behind a device. IPv6 does not look at sources. */
export function replyRules({ name, mtu }: ReplyDevice, family: IpFamily): readonly Rule[] {
  const set = setName("DSR", family);
  const comment = IP_SETS.DSR[1];
  const inInterface = { value: name };
  const forged: Rule = {
    inInterface,
    extensions: [["set", "!", "--match-set", set, "src"], ["addrtype", "--src-type", "LOCAL"]],
    comment,
    ...DROP,
  };
  const syn: Rule = {
    inInterface,
    protocol: "TCP",
    extensions: [["tcp", "--tcp-flags", "SYN,RST", "SYN"], ["set", "--match-set", set, "src"]],
    comment,
    target: ["TCPMSS", "--set-mss", String(mtu - HEADERS[family])],
  };
  return family === "IPv4" ? [forged, syn] : [syn];
}

/** The devices of {@linkcode replyRules} in the text of a chain. */
export function replyDevicesIn(chain: string | undefined): ReadonlySet<string> {
  const lines = (chain ?? "").split("\n").filter((line) => line.includes(" TCPMSS "));
  return new Set(lines.flatMap((line) => /(?:^| )-i (\S+)/.exec(line)?.[1] ?? []));
}
