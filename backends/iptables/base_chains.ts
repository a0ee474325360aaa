/**
 * The chains that are always there, the jumps that lead to them, and the roots of the trees.
 *
 * ```
 *            ┌────────────┐      ┌─────────┐   ┌─────────┐    ┌──────────────┐
 *  eth0 ───► │ PREROUTING │ ───► │ routing │ ─►│ FORWARD │ ─► │ POSTROUTING  │ ───► eth0
 *            │ nat (1)    │      └────┬────┘   │ filter  │    │ nat (3)      │
 *            └────────────┘           ▼        │ (2)     │    └──────▲───────┘
 *                                ┌─────────┐   └─────────┘           │
 *                                │ INPUT   │                  ┌──────┴───────┐
 *                                │ filter  │ ─► process ─────►│ OUTPUT       │
 *                                │ (2)     │                  │ nat (1)      │
 *                                └─────────┘                  │ filter (2)   │
 *                                                             └──────────────┘
 * ```
 *
 * 1. nat `KUBE-SERVICES`: the destination becomes an endpoint, or the packet continues unchanged. Only
 *    the first packet of a connection passes this chain. It ends with `KUBE-NODEPORTS`.
 * 2. filter: a packet that still has the address of a Service found no endpoint there (REJECT,
 *    DROP: `KUBE-SERVICES`, `KUBE-EXTERNAL-SERVICES`) or was not admitted (`KUBE-PROXY-FIREWALL`).
 *    The nat table has no REJECT, and one must not drop there.
 * 3. nat `KUBE-POSTROUTING`: packets with the mark leave with an address of the node, and so do
 *    packets of an endpoint to itself (`KUBE-HAIRPIN`).
 *
 * @module
 */
import { type Cidr, parseCidr } from "../../lib/net/cidr.ts";
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import { INVALID_COUNTER } from "../netfilter/iptables/iptables_features.ts";
import {
  type IptablesTable,
  type Jump as ChainJump,
  type Rule,
  ruleText,
} from "../netfilter/iptables/iptables_objects.ts";
import { type SavedTables, targetOf } from "../netfilter/iptables/iptables_save.ts";
import { normalRule } from "../netfilter/iptables/rule_normal_form.ts";
import type { PathKind } from "./packet_path.ts";
import { type IptablesRenderOptions, masqueradeMark } from "./render_options.ts";

/** A rule of this mode in a built-in chain, or in `KUBE-FIREWALL`, which belongs to the kubelet. */
export interface Jump extends ChainJump {
  /** The kubelet adds the same rule, so removal leaves it. */
  readonly isShared?: true;
}

/** A tree of chains. */
export interface TreeSpec {
  readonly table: IptablesTable;
  /** The chain at its root. */
  readonly root: string;
  /** The prefix of the names of the other chains. */
  readonly base: string;
  readonly kind: PathKind;
}

/** The mark is set by a jump to it. Other software jumps there too. */
export const MARK_MASQ = "KUBE-MARK-MASQ";
/** The chain that is missing or empty after another program flushed a table. */
export const CANARY = "KUBE-PROXY-CANARY";
/**
 * kube-proxy's canary has no rule, so that `iptables -F` alone, which empties chains and leaves them
 * there, takes every Service away unseen.
 */
const CANARY_RULES: readonly Rule[] = [{ target: ["RETURN"] }];
/** The kubelet's chain, whose rules stay. */
export const KUBELET_FIREWALL = "KUBE-FIREWALL";
export const LOOPBACK_RANGE: Cidr = parseCidr("127.0.0.0/8");

/** The purpose of each tree. */
export const TREES = {
  /** Cluster IPs, external IPs and load balancer addresses → endpoints. */
  services: { table: "nat", root: "KUBE-SERVICES", base: "KUBE-VIP-", kind: "destination" },
  /** Node ports → endpoints. */
  nodePorts: { table: "nat", root: "KUBE-NODEPORTS", base: "KUBE-NP-", kind: "port" },
  /** Endpoints that may be sent their own packets. */
  hairpin: { table: "nat", root: "KUBE-HAIRPIN", base: "KUBE-HP-", kind: "endpoint" },
  /** Cluster IPs without endpoints. */
  refused: { table: "filter", root: "KUBE-SERVICES", base: "KUBE-VIP-", kind: "destination" },
  /** External IPs and load balancer addresses without endpoints. */
  refusedExternal: {
    table: "filter",
    root: "KUBE-EXTERNAL-SERVICES",
    base: "KUBE-EVIP-",
    kind: "destination",
  },
  /** Node ports without endpoints. */
  refusedNodePorts: {
    table: "filter",
    root: "KUBE-EXTERNAL-NODEPORTS",
    base: "KUBE-ENP-",
    kind: "port",
  },
  /** Load balancer addresses with source ranges. */
  firewall: {
    table: "filter",
    root: "KUBE-PROXY-FIREWALL",
    base: "KUBE-FVIP-",
    kind: "destination",
  },
  /** Ports on which load balancers ask for this node's health. */
  healthChecks: { table: "filter", root: "KUBE-NODEPORTS", base: "KUBE-HCP-", kind: "port" },
} as const satisfies Readonly<Record<string, TreeSpec>>;

/** One of {@linkcode TREES}. */
export type TreeId = keyof typeof TREES;

const NEW = ["conntrack", "--ctstate", "NEW"];

function jump(table: IptablesTable, from: Jump["from"], rule: Rule): Jump {
  return { table, from, rule };
}

const SERVICES = { comment: "kubernetes service portals", target: ["KUBE-SERVICES"] };
const EXTERNAL = {
  extensions: [NEW],
  comment: "kubernetes externally-visible service portals",
  target: ["KUBE-EXTERNAL-SERVICES"],
};
const FIREWALL = {
  extensions: [NEW],
  comment: "kubernetes load balancer firewall",
  target: ["KUBE-PROXY-FIREWALL"],
};

/** The jumps in the order of insertion. Each is inserted at the top, so the last one comes first. */
const JUMPS: readonly Jump[] = [
  // Not in upstream, where the node itself waits for a time-out instead of being refused.
  jump("filter", "OUTPUT", EXTERNAL),
  jump("filter", "INPUT", EXTERNAL),
  jump("filter", "FORWARD", EXTERNAL),
  jump("filter", "INPUT", {
    comment: "kubernetes health check service ports",
    target: ["KUBE-NODEPORTS"],
  }),
  jump("filter", "FORWARD", { ...SERVICES, extensions: [NEW] }),
  jump("filter", "OUTPUT", { ...SERVICES, extensions: [NEW] }),
  jump("filter", "FORWARD", {
    comment: "kubernetes forwarding rules",
    target: ["KUBE-FORWARD"],
  }),
  jump("filter", "INPUT", FIREWALL),
  jump("filter", "OUTPUT", FIREWALL),
  jump("filter", "FORWARD", FIREWALL),
  jump("nat", "OUTPUT", SERVICES),
  jump("nat", "PREROUTING", SERVICES),
  jump("nat", "POSTROUTING", {
    comment: "kubernetes postrouting rules",
    target: ["KUBE-POSTROUTING"],
  }),
];

/** The kubelet's own, spelled as it spells them. */
const MARTIAN_JUMPS: readonly Jump[] = (["INPUT", "OUTPUT"] as const).map((from) => ({
  ...jump("filter", from, { target: [KUBELET_FIREWALL] }),
  isShared: true,
}));

/** The jumps that have to be there, in the order in which missing ones are inserted at the top. */
export function baseJumps(options: IptablesRenderOptions): readonly Jump[] {
  const jumps = needsMartianRule(options) ? [...JUMPS, ...MARTIAN_JUMPS] : JUMPS;
  return jumps.map(({ rule, ...rest }) => {
    const [spelled = rule] = commented([rule], options);
    return { ...rest, rule: spelled };
  });
}

/**
 * The chains of fixed content, by table. Roots of trees are not among them; nor is `KUBE-FIREWALL`
 * where we have no rule for it, since writing it would take the kubelet's rule away.
 */
export function baseChains(
  options: IptablesRenderOptions,
): Readonly<Record<IptablesTable, ReadonlyMap<string, readonly Rule[]>>> {
  return {
    mangle: new Map(options.features.mangle ? [[CANARY, CANARY_RULES]] : []),
    filter: new Map([
      [CANARY, CANARY_RULES],
      ["KUBE-FORWARD", commented(forwardRules(options), options)],
      ...(needsMartianRule(options)
        ? [[KUBELET_FIREWALL, commented([MARTIAN_RULE], options)] as const]
        : []),
    ]),
    nat: new Map([
      [CANARY, CANARY_RULES],
      [MARK_MASQ, [{ target: ["MARK", "--or-mark", masqueradeMark(options)] }]],
      ["KUBE-POSTROUTING", commented(postroutingRules(options), options)],
    ]),
  };
}

/** The rules, without comments where the kernel has none. */
function commented(
  rules: readonly Rule[],
  { features }: IptablesRenderOptions,
): readonly Rule[] {
  return features.comment ? rules : rules.map(({ comment: _, ...rule }) => rule);
}

/**
 * Whether this mode, or kube-proxy's iptables mode, creates and removes chains of this name.
 * `KUBE-XLB-` existed until 1.23.
 */
export function isServiceChain(table: IptablesTable, name: string): boolean {
  if (table === "nat") return /^KUBE-(SVC|SVL|EXT|XLB|FW|SEP|VIP|NP|HP)-/.test(name);
  return table === "filter" && /^KUBE-(VIP|EVIP|ENP|FVIP|HCP)-/.test(name);
}

/** The target that gives a packet an address of this node as its source. */
export function masquerade({ features }: IptablesRenderOptions): readonly string[] {
  return features.randomFully ? ["MASQUERADE", "--random-fully"] : ["MASQUERADE"];
}

/**
 * route_localnet, which localhost node ports need, lets neighbours reach services that listen on
 * 127.0.0.1 (CVE-2020-8558): only what we sent there ourselves may have such a destination.
 */
const MARTIAN_RULE: Rule = {
  destination: { value: LOOPBACK_RANGE },
  source: { value: LOOPBACK_RANGE, not: true },
  extensions: [["conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT"]],
  comment: "block incoming localnet connections",
  target: ["DROP"],
};

function needsMartianRule({ family, localhostNodePorts }: IptablesRenderOptions): boolean {
  return family === "IPv4" && localhostNodePorts;
}

function forwardRules(options: IptablesRenderOptions): readonly Rule[] {
  const { features, beLiberal } = options;
  const mark = masqueradeMark(options);
  const counter = features.nfacct ? [["nfacct", "--nfacct-name", INVALID_COUNTER]] : [];
  // A packet that conntrack takes for invalid is not translated back: its receiver would see the
  // endpoint's own address and reset the connection (kubernetes#74839).
  const invalid: Rule = {
    extensions: [["conntrack", "--ctstate", "INVALID"], ...counter],
    target: ["DROP"],
  };
  return [
    ...(beLiberal ? [] : [invalid]),
    {
      extensions: [["mark", "--mark", `${mark}/${mark}`]],
      comment: "kubernetes forwarding rules",
      target: ["ACCEPT"],
    },
    {
      extensions: [["conntrack", "--ctstate", "RELATED,ESTABLISHED"]],
      comment: "kubernetes forwarding conntrack rule",
      target: ["ACCEPT"],
    },
    // In place of the mark. They come last, because all packets but the first are accepted above.
    ...toRanges(options, [], { target: ["ACCEPT"] }),
  ];
}

/** Rules for connections to cluster IPs that no pod opened; none if each ServicePort marks them. */
function toRanges(
  { masqueradedRanges }: IptablesRenderOptions,
  extensions: readonly (readonly string[])[],
  rest: Pick<Rule, "target">,
): readonly Rule[] {
  const { services = [], pods } = masqueradedRanges ?? {};
  if (pods === undefined) return [];
  return services.map((range) => ({
    source: { value: pods, not: true },
    extensions: [...extensions, ["conntrack", "--ctstate", "DNAT", "--ctorigdst", range]],
    comment: "cluster IPs, not from pods",
    ...rest,
  }));
}

function unmarkedBy(options: IptablesRenderOptions): readonly string[] {
  const mark = masqueradeMark(options);
  return ["mark", "!", "--mark", `${mark}/${mark}`];
}

/** The rules that masquerade packets to whole ranges of cluster IPs. */
export function rangeRules(options: IptablesRenderOptions): readonly Rule[] {
  const rules = toRanges(options, [unmarkedBy(options)], { target: masquerade(options) });
  return commented(rules, options);
}

function postroutingRules(options: IptablesRenderOptions): readonly Rule[] {
  const mark = masqueradeMark(options);
  const unmarked = unmarkedBy(options);
  return [
    {
      extensions: [unmarked, ["conntrack", "--ctstate", "DNAT"]],
      target: [TREES.hairpin.root],
    },
    ...rangeRules(options),
    { extensions: [unmarked], target: ["RETURN"] },
    // The mark is removed, because the packet may pass here again inside a tunnel.
    { target: ["MARK", "--xor-mark", mark] },
    { comment: "kubernetes service traffic requiring SNAT", target: masquerade(options) },
  ];
}

/**
 * The kind of all own jumps of a chain; the name is `table chain`. They are one object, since their
 * order counts: if some are missing, there twice or in the wrong order, one commit removes and inserts
 * all of them. Rules of other programs may stand between them.
 */
export const JUMPS_KIND = "jumps";
/**
 * The kind of a jump by itself; the name is `table chain rule`. It is one that the kubelet writes too, or
 * a leftover of kube-proxy, from another mode or in an older form, which leads to a chain that this mode
 * owns now.
 */
export const JUMP_KIND = "jump";

/** No other software comments its rules so. */
const KUBE_PROXYS_COMMENT = / --comment "(kubernetes|kube-proxy) /;

/** The jumps that have to be there, as objects. */
export function* wantedJumps(options: IptablesRenderOptions): Generator<KernelObject> {
  for (const { table, from, own, shared } of jumpsByChain(options)) {
    yield { kind: JUMPS_KIND, name: `${table} ${from}`, text: own.join("\n") };
    for (const rule of shared) {
      yield { kind: JUMP_KIND, name: `${table} ${from} ${rule}`, text: rule };
    }
  }
}

/** The jumps that are there, and leftovers. */
export function* foundJumps(
  options: IptablesRenderOptions,
  tables: SavedTables,
): Generator<KernelObject> {
  for (const { table, from, own, shared } of jumpsByChain(options)) {
    const present = tables[table].builtIn.get(from) ?? [];
    const isOwn = new Set(own.map(normalRule));
    const targets = new Set(own.map(targetOf));
    const found: string[] = [];
    const stale: string[] = [];
    const meanings = new Set<string>();
    for (const rule of present) {
      const meaning = normalRule(rule);
      meanings.add(meaning);
      if (isOwn.has(meaning)) found.push(rule);
      else if (KUBE_PROXYS_COMMENT.test(rule) && targets.has(targetOf(rule))) stale.push(rule);
    }
    if (found.length > 0) {
      yield { kind: JUMPS_KIND, name: `${table} ${from}`, text: found.join("\n") };
    }
    for (const rule of shared) {
      if (!meanings.has(normalRule(rule))) continue;
      yield { kind: JUMP_KIND, name: `${table} ${from} ${rule}`, text: rule };
    }
    for (const [rule, all] of Map.groupBy(stale, (rule) => rule)) {
      yield { kind: JUMP_KIND, name: `${table} ${from} ${rule}`, text: all.join("\n") };
    }
  }
}

/** `own`: in the order of the chain; `shared`: those that the kubelet inserts again wherever it likes. */
function jumpsByChain(options: IptablesRenderOptions) {
  const groups = Map.groupBy(baseJumps(options), ({ table, from }) => `${table} ${from}`);
  return [...groups.values()].map((group) => ({
    table: group[0]!.table,
    from: group[0]!.from,
    // Each is inserted at the top.
    own: group.filter(({ isShared }) => !isShared).map(({ rule }) => ruleText(rule)).reverse(),
    shared: group.filter(({ isShared }) => isShared).map(({ rule }) => ruleText(rule)),
  }));
}
