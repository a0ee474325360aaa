/**
 * The BGP protocol of a peer in BIRD's configuration, and the filters: what is accepted from peers and
 * what is sent to them. Pure.
 *
 * @module
 */
import { type Cidr, cidrFamilyOf } from "../../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf } from "../../../lib/net/ip_address.ts";
import {
  BGP_PORT,
  type BgpPeer,
  type BgpPlan,
  type ImportedPrefix,
} from "../../../lib/routing/bgp_plan.ts";
import {
  announcesTo,
  FAMILY_DIGIT,
  LEARNED_FROM_MESH,
  passwordOf,
  protocolOf,
  symbolOf,
} from "./bird_text.ts";

/** Renders a peer. Throws a RangeError with the field and value that BIRD would refuse. */
export function peerLines(
  plan: BgpPlan,
  peer: BgpPeer,
  { isShutDown }: { readonly isShutDown: boolean },
): string[] {
  checkPeer(plan, peer);
  const settings = [
    ...(isShutDown ? ["disabled;"] : []),
    localLine(plan, peer),
    `neighbor ${peer.address} port ${peer.port} as ${peer.as};`,
    peer.multihopTtl === undefined ? "direct;" : `multihop ${peer.multihopTtl};`,
    ...(isStrict(plan, peer) ? ["strict bind on;"] : []),
    ...(peer.passwordFile === undefined ? [] : [`password ${passwordOf(peer.name)};`]),
    `hold time ${peer.holdTimeSeconds};`,
    // BIRD's own values, up to 5 minutes, are those of a router with a thousand peers.
    "connect delay time 1;",
    "connect retry time 10;",
    "error wait time 2, 30;",
    `bfd ${peer.bfd ? "on" : "off"};`,
    ...restartLines(peer),
    ...(peer.role === "reflector-client" ? ["rr client;"] : []),
    ...(peer.role === "reflector-client" && peer.reflectorClusterId !== undefined
      ? [`rr cluster id ${peer.reflectorClusterId};`]
      : []),
    ...channelLines(plan, peer),
  ];
  return [`protocol bgp ${protocolOf(peer.name)} {`, ...settings.map((line) => `  ${line}`), "}"];
}

/** The configuration is one text, so a value that BIRD refuses would stop all other peers. */
function checkPeer({ localAs }: BgpPlan, peer: BgpPeer): void {
  const { address, as, holdTimeSeconds, localAddress, name, role } = peer;
  if (role === "reflector-client" && as !== localAs) {
    throw new RangeError(
      `Cannot reflect routes to peer ${name} with AS ${as}: expected the node's AS ${localAs}`,
    );
  }
  if (holdTimeSeconds !== 0 && !(holdTimeSeconds >= 3 && holdTimeSeconds <= 65_535)) {
    throw new RangeError(
      `Cannot use hold time ${holdTimeSeconds} of peer ${name}: expected 0 or 3 to 65535 seconds`,
    );
  }
  if (localAddress !== undefined && ipFamilyOf(localAddress) !== ipFamilyOf(address)) {
    throw new RangeError(
      `Cannot reach peer ${name} at ${address} from ${localAddress}: ` +
        "expected two addresses of one family",
    );
  }
  const why = "link-local addresses belong to one interface; use another address of";
  if (isLinkLocal(address)) {
    throw new RangeError(`Cannot reach peer ${name} at ${address}: ${why} the peer`);
  }
  if (localAddress !== undefined && isLinkLocal(localAddress)) {
    throw new RangeError(`Cannot reach peer ${name} from ${localAddress}: ${why} this node`);
  }
}

/** BIRD refuses those of IPv6 without an interface. A Node may have such an address. */
function isLinkLocal(address: IpAddress): boolean {
  return /^fe[89ab]/.test(address);
}

/**
 * Whether BIRD listens at the local address alone, so that the port stays free at others. One socket
 * for all addresses would take the port of each, and the session would never start.
 */
function isStrict({ peers }: BgpPlan, peer: BgpPeer): boolean {
  return peers.every((other) =>
    other.localAddress !== undefined ||
    listeningPort(other) !== listeningPort(peer) ||
    ipFamilyOf(other.address) !== ipFamilyOf(peer.address)
  );
}

/** Nodes expect each other at one port, so the node listens on the port at which it calls them. */
function listeningPort({ port, role }: BgpPeer): number {
  return role === "external" ? BGP_PORT : port;
}

function localLine({ localAs }: BgpPlan, peer: BgpPeer): string {
  const address = peer.localAddress === undefined ? [] : [peer.localAddress];
  return ["local", ...address, `port ${listeningPort(peer)}`, `as ${localAs};`].join(" ");
}

function restartLines({ gracefulRestartSeconds }: BgpPeer): string[] {
  return gracefulRestartSeconds === undefined
    ? ["graceful restart off;"]
    : ["graceful restart on;", `graceful restart time ${gracefulRestartSeconds};`];
}

function channelLines(plan: BgpPlan, peer: BgpPeer): string[] {
  const family = ipFamilyOf(peer.address);
  const digit = FAMILY_DIGIT[family];
  const importFilter = importFilterOf(plan, peer);
  return [
    `ipv${digit} {`,
    ...(importFilter === undefined ? ["  import none;"] : [
      `  import filter ${importFilter};`,
      // A changed filter then applies to what the peer has sent already. Without the table BIRD
      // asks the peer to send it again, and FRR 8.4 does not answer.
      "  import table on;",
      `  receive limit ${plan.imports.limitPerPeer} action disable;`,
    ]),
    `  export filter ${exportFilterOf(plan, peer)};`,
    ...(peer.nextHopSelf ? ["  next hop self;"] : []),
    ...(peer.multihopTtl === undefined ? [] : [`  igp table connected${digit};`]),
    "};",
    ...(peer.otherNextHop === undefined ? [] : [
      `ipv${FAMILY_DIGIT[family === "IPv4" ? "IPv6" : "IPv4"]} {`,
      // What is accepted is configured for the family of the session.
      "  import none;",
      `  export filter ${exportFilterOf(plan, peer)};`,
      `  next hop address ${peer.otherNextHop};`,
      "};",
    ]),
  ];
}

/** The filters that some peers need, each once. */
export function filterLines(plan: BgpPlan, peers: readonly BgpPeer[]): string[] {
  const filters = new Map<string, readonly string[]>();
  for (const peer of peers) {
    const name = importFilterOf(plan, peer);
    // Every node of the mesh has the same, with the addresses of all nodes.
    if (name !== undefined && !filters.has(name)) filters.set(name, importLines(plan, peer));
    filters.set(exportFilterOf(plan, peer), exportLines(plan, peer));
  }
  return [...filters].toSorted(([left], [right]) => left < right ? -1 : 1).flatMap((
    [name, lines],
  ) => [`filter ${name} {`, ...lines.map((line) => `  ${line}`), "  reject;", "}"]);
}

/** The name of the filter for prefixes of a peer; `undefined` = none are accepted. */
function importFilterOf({ imports }: BgpPlan, peer: BgpPeer): string | undefined {
  const { import: own, address, name } = peer;
  if (own) {
    const isEmpty = own.prefixes.length + own.clusterPrefixes.length === 0 && !own.defaultRoute;
    return isEmpty ? undefined : `accept_${name}`;
  }
  const [source, family] = [sourceOf(peer), ipFamilyOf(address)];
  const acceptsDefault = source === "external" && imports.defaultRoute;
  const isEmpty = ofFamily(imports[source], family).length === 0;
  return isEmpty && !acceptsDefault ? undefined : `import_${source}${FAMILY_DIGIT[family]}`;
}

function importLines({ imports }: BgpPlan, peer: BgpPeer): string[] {
  const [source, family] = [sourceOf(peer), ipFamilyOf(peer.address)];
  const refused = prefixSet(ofFamily(imports.refused, family).map(anyLength));
  const { import: own } = peer;
  // A wide prefix in the configuration does not admit the default route.
  const defaultRoute = (isAccepted: boolean) =>
    `if net.len = 0 then ${isAccepted ? "accept" : "reject"};`;
  if (own) {
    return [
      defaultRoute(own.defaultRoute),
      ...whereIn(prefixSet(own.clusterPrefixes.map(ofLengths)), "accept;"),
      ...whereIn(refused, "reject;"),
      ...whereIn(prefixSet(own.prefixes.map(ofLengths)), "accept;"),
    ];
  }
  const mark = source === "mesh" ? `${LEARNED_FROM_MESH} = 1; ` : "";
  const accepted = prefixSet(ofFamily(imports[source], family).map(anyLength));
  return [
    ...whereIn(refused, "reject;"),
    defaultRoute(source === "external" && imports.defaultRoute),
    ...whereIn(accepted, `{ ${mark}accept; }`),
  ];
}

/** The configured ranges that apply to a peer. */
function sourceOf({ role }: BgpPeer): "external" | "mesh" {
  return role === "external" ? "external" : "mesh";
}

function whereIn(set: string | undefined, action: string): string[] {
  return set === undefined ? [] : [`if net ~ ${set} then ${action}`];
}

/** A set of prefix patterns, e.g. `[ 10.0.0.0/8+ ]`; `undefined` = BIRD has no empty set. */
function prefixSet(patterns: readonly string[]): string | undefined {
  return patterns.length === 0 ? undefined : `[ ${patterns.join(", ")} ]`;
}

/** A prefix with everything in it. */
function anyLength(prefix: Cidr): string {
  return `${prefix}+`;
}

function ofLengths({ prefix, minLength, maxLength }: ImportedPrefix): string {
  return `${prefix}{${minLength},${maxLength}}`;
}

/** The name of the filter for what is sent to a peer. */
function exportFilterOf(plan: BgpPlan, peer: BgpPeer): string {
  return [
    "export",
    symbolOf(peer.role),
    ...(reflectsTo(plan, peer) ? ["reflected"] : []),
    ...(peer.prepend > 0 ? [`prepend${peer.prepend}`] : []),
  ].join("_");
}

function exportLines(plan: BgpPlan, peer: BgpPeer): string[] {
  const prepended = Array.from(
    { length: peer.prepend },
    () => `bgp_path.prepend(${plan.localAs});`,
  );
  const actions = [...prepended, "accept;"].join(" ");
  return [
    `if source = RTS_STATIC && defined(${announcesTo(peer.role)}) then { ${actions} }`,
    ...(reflectsTo(plan, peer)
      ? [`if source = RTS_BGP && defined(${LEARNED_FROM_MESH}) then { ${actions} }`]
      : []),
  ];
}

/**
 * Whether a peer receives routes of other nodes. BIRD adds the rule of reflectors: routes of clients
 * go to every peer, and all other routes go to clients only.
 */
function reflectsTo({ localAs, peers }: BgpPlan, { as, role }: BgpPeer): boolean {
  return role !== "external" && as === localAs &&
    peers.some((peer) => peer.role === "reflector-client");
}

function ofFamily(prefixes: readonly Cidr[], family: IpFamily): Cidr[] {
  return prefixes.filter((prefix) => cidrFamilyOf(prefix) === family);
}
