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
import { assertNever } from "../../lib/proxy/verdict.ts";
import type {
  Chain,
  IptablesTable,
  Jump,
  Rule,
  RuleMatch,
} from "../netfilter/iptables/iptables_objects.ts";
import { IP_SETS, type SetId, setName } from "./ipset_table.ts";
import { type IpvsRenderOptions, masqueradeMark } from "./render_service.ts";

/** The inputs of the rules that all Services share. */
export interface BaseRuleContext {
  readonly options: IpvsRenderOptions;
  readonly localTraffic: LocalTrafficDetector;
  readonly masqueradeInternal: ServicePlan["masqueradeInternal"];
}

/** The chain with one rule for each external address of policy Local; see {@linkcode baseChains}. */
export const FROM_CLUSTER = "KUBE-FROM-CLUSTER";

const LOOPBACK: Readonly<Record<IpFamily, Cidr>> = {
  IPv4: parseCidr("127.0.0.0/8"),
  IPv6: parseCidr("::1/128"),
};
const MARK_MASQ = "KUBE-MARK-MASQ";
const MARK: Rule = { target: [MARK_MASQ] };
const ACCEPT: Rule = { target: ["ACCEPT"] };
const RETURN: Rule = { target: ["RETURN"] };
const DROP: Rule = { target: ["DROP"] };
const TO_FROM_CLUSTER: Rule = { target: [FROM_CLUSTER] };
const TO_NODE: RuleMatch = { extensions: [["addrtype", "--dst-type", "LOCAL"]] };
const NEW: readonly string[] = ["conntrack", "--ctstate", "NEW"];

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
    jump("mangle", from, ["kube-proxy firewall rules", "KUBE-PROXY-FIREWALL"]),
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
  const { options } = context;
  const chains = {
    mangle: {
      "KUBE-PROXY-FIREWALL": firewallRules(options),
      "KUBE-SOURCE-RANGES-FIREWALL": sourceRangeRules(options),
    },
    nat: {
      "KUBE-SERVICES": serviceRules(context),
      "KUBE-LOAD-BALANCER": [
        inSet(options, "LOAD-BALANCER-LOCAL", { on: "dst,dst", then: RETURN }),
        MARK,
      ],
      "KUBE-NODE-PORT": nodePortRules(context),
      [FROM_CLUSTER]: [{ ...FROM_NODE, ...MARK }],
      "KUBE-POSTROUTING": postroutingRules(options),
      [MARK_MASQ]: [{ target: ["MARK", "--or-mark", masqueradeMark(options)] }],
    },
    filter: {
      "KUBE-FORWARD": forwardRules(options),
      "KUBE-NODE-PORT": [
        { protocol: "TCP" as const, ...healthChecks(options, ACCEPT) },
      ],
      "KUBE-IPVS-FILTER": filterRules(options),
    },
  };
  return (["mangle", "nat", "filter"] as const).flatMap((table) =>
    Object.entries(chains[table]).map(([name, rules]) => ({ table, name, rules }))
  );
}

function firewallRules(options: IpvsRenderOptions): readonly Rule[] {
  return [
    inSet(options, "NO-LOCAL-INTERNAL", { on: "dst,dst", also: [NEW], then: DROP }),
    inSet(options, "LOAD-BALANCER-FW", {
      on: "dst,dst",
      // Existing connections continue, as in the other modes.
      also: [NEW],
      then: { target: ["KUBE-SOURCE-RANGES-FIREWALL"] },
    }),
  ];
}

function sourceRangeRules(options: IpvsRenderOptions): readonly Rule[] {
  return [
    inSet(options, "LOAD-BALANCER-SOURCE-CIDR", { on: "dst,dst,src", then: RETURN }),
    inSet(options, "LOAD-BALANCER-SOURCE-IP", { on: "dst,dst,src", then: RETURN }),
    DROP,
  ];
}

function serviceRules(context: BaseRuleContext): readonly Rule[] {
  const { options, localTraffic } = context;
  const loopback = LOOPBACK[options.family];
  const matching = (id: SetId, match: RuleMatch, then: Rule): Rule => {
    const { extensions = [], ...rest } = match;
    return { ...rest, ...inSet(options, id, { on: "dst,dst", also: extensions, then }) };
  };
  const internal = masqueradedInternal(context);
  return [
    { source: { value: loopback }, ...RETURN },
    ...(["EXTERNAL-IP-LOCAL", "LOAD-BALANCER-LOCAL"] as const).flatMap((id) =>
      clusterSources(localTraffic).map((match) => matching(id, match, TO_FROM_CLUSTER))
    ),
    matching("LOAD-BALANCER", {}, { target: ["KUBE-LOAD-BALANCER"] }),
    inSet(options, "CLUSTER-IP", { ...internal, then: MARK }),
    matching("EXTERNAL-IP", {}, MARK),
    // A port of a Service may also be the number of a node port.
    matching("SERVED", {}, ACCEPT),
    { ...TO_NODE, target: ["KUBE-NODE-PORT"] },
  ];
}

/** Matches the packets to cluster IPs that are masqueraded. */
function masqueradedInternal(
  { masqueradeInternal, localTraffic }: BaseRuleContext,
): Omit<SetMatch, "then"> {
  switch (masqueradeInternal) {
    case "all":
      return { on: "dst,dst" };
    case "off-cluster":
      return { on: "dst,dst", match: notFromPod(localTraffic) ?? {} };
    case "none":
      // Packets of the node: the kernel chose the Service address itself as their source.
      return { on: "src,dst" };
    default:
      return assertNever(masqueradeInternal);
  }
}

function nodePortRules({ options, localTraffic }: BaseRuleContext): readonly Rule[] {
  const sets = [
    ["TCP", "NODE-PORT-LOCAL-TCP", "NODE-PORT-TCP", "dst"],
    ["UDP", "NODE-PORT-LOCAL-UDP", "NODE-PORT-UDP", "dst"],
    ["SCTP", "NODE-PORT-LOCAL-SCTP-HASH", "NODE-PORT-SCTP-HASH", "dst,dst"],
  ] as const;
  return sets.flatMap(([protocol, local, all, on]) => [
    ...clusterSources(localTraffic).map(({ extensions = [], ...match }) => ({
      protocol,
      ...inSet(options, local, { on, match, also: extensions, then: TO_FROM_CLUSTER }),
    })),
    { protocol, ...inSet(options, local, { on, then: RETURN }) },
    { protocol, ...inSet(options, all, { on, then: MARK }) },
  ]);
}

function postroutingRules(options: IpvsRenderOptions): readonly Rule[] {
  const mark = masqueradeMark(options);
  const target = options.features.randomFully ? ["MASQUERADE", "--random-fully"] : ["MASQUERADE"];
  return [
    // Matches only packets to Services: a pod may also connect to itself directly.
    inSet(options, "LOOP-BACK", { on: "dst,dst,src", then: { target } }),
    { extensions: [["mark", "!", "--mark", `${mark}/${mark}`]], ...RETURN },
    // The mark is removed, because the packet may pass here again inside a tunnel.
    { target: ["MARK", "--xor-mark", mark] },
    { comment: "kubernetes service traffic requiring SNAT", target },
  ];
}

function forwardRules(options: IpvsRenderOptions): readonly Rule[] {
  const mark = masqueradeMark(options);
  return [
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
  ];
}

function filterRules(options: IpvsRenderOptions): readonly Rule[] {
  return [
    inSet(options, "NO-LOCAL-EXTERNAL", { on: "dst,dst", also: [NEW], then: DROP }),
    inSet(options, "SERVED", { on: "dst,dst", then: RETURN }),
    healthChecks(options, RETURN),
    inSet(options, "IPVS-IPS", { on: "dst", also: [NEW], then: { target: ["REJECT"] } }),
  ];
}

function healthChecks(options: IpvsRenderOptions, then: Rule): Rule {
  return inSet(options, "HEALTH-CHECK-NODE-PORT", { on: "dst", then });
}

/** Matches sources that policy Local does not restrict: the node, and pods if detectable. */
function clusterSources(detector: LocalTrafficDetector): readonly RuleMatch[] {
  const pod = fromPod(detector);
  return [...(pod ? [pod] : []), FROM_NODE];
}

interface SetMatch {
  /** The parts of a packet that are looked up, e.g. `dst,dst`. */
  readonly on: string;
  /** Further conditions. */
  readonly match?: RuleMatch;
  /** Further extensions. */
  readonly also?: readonly (readonly string[])[];
  readonly then: Rule;
}

function inSet(
  { family }: IpvsRenderOptions,
  id: SetId,
  { on, match = {}, also = [], then }: SetMatch,
): Rule {
  return {
    ...match,
    extensions: [["set", "--match-set", setName(id, family), on], ...also],
    comment: IP_SETS[id].comment,
    ...then,
  };
}
