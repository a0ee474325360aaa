/**
 * Chains that choose an endpoint. They are shared: there is one for each number of endpoints and
 * each treatment of the sender, whatever the number of Services. Pure.
 *
 * @module
 */
import type { KernelObject } from "../../lib/engine/reconciler.ts";
import type { LocalTrafficDetector } from "../../lib/proxy/local_traffic.ts";
import { EXPRESSIONS, PORT } from "./containers.ts";
import { masqueradeMark, type NftablesRenderOptions } from "./render_options.ts";
import { LOCAL_BIT, nameNumber, SLOT_BIT, slotText } from "./slots.ts";
import { interfaceNameLength, LONGEST_INTERFACE_NAME } from "../../lib/net/interface_name.ts";
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { assertNever } from "../../lib/proxy/verdict.ts";
import type { NftChain } from "../netfilter/nft/nft_objects.ts";

/** The number of endpoints to choose from, or the outcome without any. */
export type Choice = number | "drop" | "reject";

const TREATMENTS = ["to", "local", "masquerade", "off-cluster"] as const;

/**
 * The treatment of the sender's address: `to` keeps it; `masquerade`; masquerade packets from
 * `off-cluster`; or decide by the sender's location, as external policy `local` requires.
 */
export type Treatment = typeof TREATMENTS[number];

/** The properties that distinguish a chain from others. */
export interface ChainSpec {
  /** Whether packets arrive by an address of a Service or by a node port. */
  readonly front: "vip" | "port";
  readonly treatment: Treatment;
  readonly main: Choice;
  /** For clients from outside, where the treatment is `local`. */
  readonly local?: Choice;
  /** The time for which a client stays with its endpoint. */
  readonly affinitySeconds?: number;
}

/** The inputs for the rules of a chain, besides its spec. */
export interface ChainContext {
  readonly options: NftablesRenderOptions;
  readonly localTraffic: LocalTrafficDetector;
}

/** The first number of the list for policy Local, which distinguishes it from the main list. */
export const LOCAL_OFFSET = 32_768;
/** The lowest number of any list. */
export const FIRST_NUMBER = SLOT_BIT;
/** Stands for a chain that drops packets. */
export const DROP = "drop";
/** The name of the chain that refuses. */
export const REJECT_CHAIN = "reject-all";

/** Returns the name of a chain. It contains the whole spec. */
export function chainName(spec: ChainSpec): string {
  const { front, treatment, main, local, affinitySeconds: seconds } = spec;
  const place = front === "port" ? "node-port-" : "";
  const toLocal = local === undefined ? "" : `-${local}`;
  const sticky = seconds === undefined ? "" : `-sticky-${seconds}`;
  return `${place}${treatment}-${main}${toLocal}${sticky}`;
}

const CHOOSING_CHAIN = new RegExp(
  `^(node-port-)?(${TREATMENTS.join("|")})` +
    String.raw`-(\d+|drop|reject)(?:-(\d+|drop|reject))?(?:-sticky-(\d+))?$`,
);

/** The chain of a name that {@linkcode chainName} made; `undefined` = it is none. */
export function readChainName(name: string): ChainSpec | undefined {
  const [, port, word, main, local, seconds] = CHOOSING_CHAIN.exec(name) ?? [];
  const treatment = TREATMENTS.find((each) => each === word);
  if (treatment === undefined || main === undefined) return undefined;
  const choice = (text: string): Choice =>
    text === "drop" || text === "reject" ? text : Number(text);
  return {
    front: port === undefined ? "vip" : "port",
    treatment,
    main: choice(main),
    ...(local !== undefined && { local: choice(local) }),
    ...(seconds !== undefined && { affinitySeconds: Number(seconds) }),
  };
}

/** Returns the element of the chain map for a number: the name of a chain, or `drop`. */
export function chainElement(name: string): KernelObject {
  const text = name === DROP ? name : `goto ${name}`;
  return { kind: "numbered-chains", name: nameNumber(name), text };
}

/** The rules of a chain. */
export function chainRules(spec: ChainSpec, context: ChainContext): readonly string[] {
  const { options, localTraffic } = context;
  const mark = `meta mark set meta mark or ${masqueradeMark(options)}`;
  const { treatment, main, local = main } = spec;
  const choose = (choice: Choice, match = "", offset = 0) =>
    choiceRules(choice, spec, options.family, offset).map((rule) => match + rule);
  switch (treatment) {
    case "to":
      return choose(main);
    case "masquerade":
      return [mark, ...choose(main)];
    case "off-cluster": {
      const match = fromPod(localTraffic, options.family, "!= ");
      return [...(match === undefined ? [] : [`${match} ${mark}`]), ...choose(main)];
    }
    case "local": {
      const pod = fromPod(localTraffic, options.family);
      const node = "fib saddr type local ";
      return [
        ...(pod === undefined ? [] : choose(main, `${pod} `)),
        `${node}${mark}`,
        ...choose(main, node),
        ...choose(local, "", LOCAL_OFFSET),
      ];
    }
  }
}

/**
 * The rules that choose an endpoint; `offset`: of the first number of the list.
 *
 * A client with affinity is sent to the endpoint of the ServicePort that it had last, by whichever
 * frontend. What is remembered is the slot of an endpoint. If the frontend has no such endpoint, or has
 * it no longer, the slot is not in its map: the client chooses again, and nothing has to be listed or
 * deleted.
 */
function choiceRules(
  choice: Choice,
  { front: place, affinitySeconds }: ChainSpec,
  family: IpFamily,
  offset: number,
): readonly string[] {
  if (choice === "drop") return ["drop"];
  if (choice === "reject") return [`goto ${REJECT_CHAIN}`];
  const { client, destination, table } = EXPRESSIONS[family];
  const [front, prefix] = place === "port"
    ? [PORT, "node-port-"]
    : [`${destination} . ${PORT}`, ""];
  const first = FIRST_NUMBER + offset;
  const draw = `meta priority set numgen random mod ${choice} offset ${first}`;
  const numbered = `${front} . meta priority`;
  const dnat = `dnat ${table} addr . port to ${numbered} map @${prefix}endpoints`;
  if (affinitySeconds === undefined) return [`${draw} ${dnat}`];
  const toSlot = `meta priority set ${numbered} map @${prefix}choices`;
  // Translates a remembered slot to the sender's list.
  const toList = offset === 0 ? "" : `meta priority set meta priority or ${slotText(LOCAL_BIT)} `;
  const remember = `update @affinity { ${client} timeout ${affinitySeconds}s : meta priority }`;
  return [
    // A known client, by any slot of the frontend, which identifies the ServicePort: its time begins
    // again, and it stays if its endpoint is in the list.
    `meta priority set ${slotText(first)} ${toSlot} meta priority set ${client} map @affinity ` +
    `${remember} ${toList}${numbered} @${prefix}endpoints ${dnat}`,
    // `update` would not change the value of an existing key.
    `delete @affinity { ${client} : meta priority }`,
    // A full map ends the rule, not the packet.
    `${draw} ${toSlot} ${remember}`,
    `${toList}${dnat}`,
  ];
}

/** A packet that comes from a pod, or, with the operator `!= `, from elsewhere; `undefined` = unknown. */
export function fromPod(
  detector: LocalTrafficDetector,
  family: IpFamily,
  operator: "" | "!= " = "",
): string | undefined {
  switch (detector.kind) {
    case "byCidr":
      return `${EXPRESSIONS[family].source} ${operator}${detector.cidr}`;
    case "byBridge":
      return `iifname ${operator}${quoted(detector.interfaceName)}`;
    case "byInterfacePrefix": {
      // A prefix of full length is a whole name; with a star after it nft finds it too long.
      const isWhole = interfaceNameLength(detector.prefix) >= LONGEST_INTERFACE_NAME;
      return `iifname ${operator}${quoted(detector.prefix, isWhole ? "" : "*")}`;
    }
    case "none":
      return undefined;
    default:
      return assertNever(detector);
  }
}

/**
 * Quotes the name of an interface for nft. Its strings cannot contain a quote or a line break, and
 * a star at the end would mean a prefix.
 */
function quoted(name: string, end: "" | "*" = ""): string {
  if (/["\\\s*]/.test(name)) {
    throw new RangeError(
      `Cannot write a rule for the interface '${name}': nft can't quote its name; it may hold no ` +
        "quote, backslash, star or blank",
    );
  }
  return `"${name}${end}"`;
}

/**
 * An empty chain whose name is the version of the layout. A table with another name was written by
 * another version, and is replaced as a whole.
 */
export const LAYOUT_MARK = "layout-3";

/** The chain of load balancer addresses with source ranges. */
export const SOURCE_RANGES_CHAIN = "check-source-ranges";

/** The chain that protects loopback addresses from other hosts. */
export const LOOPBACK_GUARD = "loopback-guard";

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
 * All hooks but that of the loopback guard are of type nat: the kernel asks them for the first
 * packet of a connection and never again. kube-proxy refuses in chains of type filter, which every packet passes; since kernel 5.9,
 * `reject` works in prerouting as well, so one look-up decides everything.
 */
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
