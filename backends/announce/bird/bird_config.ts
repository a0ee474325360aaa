/**
 * The configuration of BIRD 2 for a plan. Pure.
 *
 * Announced prefixes are static routes of BIRD's own tables. The kernel protocols export only routes
 * that BGP received, so an announced address never becomes a blackhole route of the node. A static
 * route carries the roles that it is announced to as attributes. So a change of one prefix changes
 * one route, and no filter, whose change would make BIRD send every route again.
 *
 * @module
 */
import type { Quarantined } from "../../../lib/engine/data_plane.ts";
import { type Cidr, cidrFamilyOf } from "../../../lib/net/cidr.ts";
import {
  IP_FAMILIES,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
} from "../../../lib/net/ip_address.ts";
import { contentId } from "../../../lib/policy/content_id.ts";
import {
  type AnnouncedPrefix,
  BGP_PORT,
  type BgpPeer,
  type BgpPlan,
  hasPassword,
  type ImportedPrefix,
} from "../../../lib/routing/bgp_plan.ts";

/** A peer (`peer NAME`) or an announced prefix (`prefix 10.0.0.1/32`) of the plan. */
export type BgpItem = `peer ${string}` | `prefix ${string}`;

/**
 * The first line of each file that kube-relay writes for BIRD. A file without it belongs to another
 * program or the administrator, and is never replaced.
 */
export const OWNER_LINE = "# Written by kube-relay. Changes are overwritten.";

/** A configuration and the items of the plan that it does not contain. */
export interface BirdConfig {
  /** Identifies the text: the value of the constant {@linkcode CONFIGURATION_ID}. */
  readonly id: string;
  readonly text: string;
  readonly quarantined: readonly Quarantined<BgpItem>[];
}

const PREFIXES_PER_PIECE = 64;

/**
 * Renders a plan, in steps: 10,000 prefixes take a tenth of a second. The same arguments give the same
 * bytes. Passwords are not part of it: they are in `secretsFile`. `leftOut`: peers without a section, by
 * name, with the reason. `shutDown`: peers that stay shut down because they sent too many prefixes.
 */
export function* birdConfig(
  plan: BgpPlan,
  secretsFile: string,
  leftOut?: ReadonlyMap<string, string>,
  shutDown?: ReadonlySet<string>,
): Generator<void, BirdConfig> {
  const quarantined: Quarantined<BgpItem>[] = [];
  /** Renders an item, or notes why BIRD would refuse it. */
  const attempt = <T>(key: BgpItem, render: () => T): T[] => {
    try {
      return [render()];
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      quarantined.push({ key, reason: error.message });
      return [];
    }
  };
  const sections = plan.peers.flatMap((peer) =>
    attempt(`peer ${peer.name}`, () => {
      const reason = leftOut?.get(peer.name);
      if (reason !== undefined) throw new RangeError(reason);
      const isShutDown = shutDown?.has(peer.name) ?? false;
      return { peer, lines: peerLines(plan, peer, { isShutDown }) };
    })
  );
  const rendered = sections.map(({ peer }) => peer);
  const restarts = rendered.flatMap(({ gracefulRestartSeconds: seconds }) => seconds ?? []);
  // After a start BIRD announces nothing to peers that restart gracefully until all of them are back or
  // this time is over. Peers drop the former routes after the time of their session, so it has to be much
  // shorter. BIRD calls a peer twice in it; a peer that is down must not delay the first announcements of
  // a node for longer.
  const waitSeconds = Math.max(2, Math.floor(Math.min(...restarts) / 4));
  const pieces = [textOf([
    ...(rendered.some(hasPassword) ? [`include ${quoted(secretsFile)};`] : []),
    "log stderr all;",
    "timeformat protocol iso long;",
    "timeformat route iso long;",
    `router id ${plan.routerId};`,
    ...(restarts.length > 0
      ? [`graceful restart wait ${Math.min(LONGEST_WAIT_SECONDS, waitSeconds)};`]
      : []),
    ...ROLES.map((role) => `attribute int ${announcesTo(role)};`),
    `attribute int ${LEARNED_FROM_MESH};`,
    "protocol device {",
    "}",
  ])];
  for (const family of IP_FAMILIES) {
    const digit = FAMILY_DIGIT[family];
    // The table of a family is BIRD's default one: `master4` or `master6`.
    pieces.push(textOf([`protocol static announced${digit} {`, `  ipv${digit};`]));
    const announced = plan.announced.filter(({ prefix }) => cidrFamilyOf(prefix) === family);
    for (let at = 0; at < announced.length; at += PREFIXES_PER_PIECE) {
      const lines = announced.slice(at, at + PREFIXES_PER_PIECE).flatMap((one) =>
        attempt(`prefix ${one.prefix}`, () => routeLines(one)).flat()
      );
      pieces.push(textOf(lines.map((line) => `  ${line}`)));
      yield;
    }
    pieces.push("}\n");
  }
  const interval = ["min rx interval 200 ms;", "min tx interval 200 ms;", "multiplier 3;"];
  const filters = new Map<string, readonly string[]>();
  for (const peer of rendered) {
    const name = importFilterOf(plan, peer);
    // Every node of the mesh has the same, with the addresses of all nodes.
    if (name !== undefined && !filters.has(name)) filters.set(name, importLines(plan, peer));
    filters.set(exportFilterOf(plan, peer), exportLines(plan, peer));
  }
  pieces.push(textOf([
    // Routes of peers go into the kernel. A route whose next hop is unknown is not exported: the kernel
    // would get an `unreachable` route, which hides a shorter prefix that works.
    ...IP_FAMILIES.flatMap((family) => [
      `protocol kernel imported${FAMILY_DIGIT[family]} {`,
      `  kernel table ${plan.imports.table};`,
      `  metric ${plan.imports.metric};`,
      // Routes that another program removed come back.
      "  scan time 60;",
      // Routes of an earlier BIRD stay until its peers are back.
      "  graceful restart on;",
      `  ipv${FAMILY_DIGIT[family]} {`,
      "    import none;",
      "    export where source = RTS_BGP && dest = RTD_UNICAST;",
      "  };",
      "}",
    ]),
    // Next hops that a distant peer sends are looked up among the networks of the node.
    ...(rendered.some(({ multihopTtl }) => multihopTtl !== undefined)
      ? [
        "ipv4 table connected4;",
        "ipv6 table connected6;",
        "protocol direct connected {",
        "  ipv4 { table connected4; };",
        "  ipv6 { table connected6; };",
        "}",
      ]
      : []),
    ...(rendered.some(({ bfd }) => bfd)
      ? [
        "protocol bfd liveness {",
        `  interface "*" { ${interval.join(" ")} };`,
        `  multihop { ${interval.join(" ")} };`,
        "}",
      ]
      : []),
    ...[...filters].toSorted(([left], [right]) => left < right ? -1 : 1).flatMap((
      [name, lines],
    ) => [
      `filter ${name} {`,
      ...lines.map((line) => `  ${line}`),
      "  reject;",
      "}",
    ]),
    ...sections.flatMap(({ lines }) => lines),
  ]));
  const ids: string[] = [];
  for (const piece of pieces) {
    ids.push(contentId(piece));
    yield;
  }
  const id = contentId(ids.join());
  const head = `${OWNER_LINE}\ndefine ${CONFIGURATION_ID} = ${quoted(id)};\n`;
  return { id, text: head + pieces.join(""), quarantined };
}

function textOf(lines: readonly string[]): string {
  return lines.map((line) => `${line}\n`).join("");
}

const LONGEST_WAIT_SECONDS = 15;

function routeLines(announced: AnnouncedPrefix): string[] {
  const { prefix, to, communities, largeCommunities, localPreference } = announced;
  return [
    `route ${prefix} blackhole {`,
    ...ROLES.filter((role) => to.includes(role)).map((role) => `  ${announcesTo(role)} = 1;`),
    ...communities.map((text) => `  bgp_community.add((${numbersOf(text, 2, 65_535)}));`),
    ...largeCommunities.map((text) =>
      `  bgp_large_community.add((${numbersOf(text, 3, 4_294_967_295)}));`
    ),
    ...(localPreference === undefined ? [] : [`  bgp_local_pref = ${localPreference};`]),
    "};",
  ];
}

/** Reads a community; throws a RangeError that says what would be right. */
function numbersOf(text: string, count: number, most: number): string {
  const numbers = /^\d{1,10}(:\d{1,10})*$/.test(text) ? text.split(":").map(Number) : [];
  if (numbers.length === count && numbers.every((number) => number <= most)) {
    return numbers.join(",");
  }
  throw new RangeError(
    `Cannot announce with community '${text}': expected ${count} numbers from 0 to ${most}, ` +
      "separated by colons",
  );
}

/** Renders a peer. Throws a RangeError with the field and value that BIRD would refuse. */
export function peerLines(
  plan: BgpPlan,
  peer: BgpPeer,
  { isShutDown }: { readonly isShutDown: boolean },
): string[] {
  const { localAs, peers, imports } = plan;
  const { name, address, port, as, role, localAddress, multihopTtl, otherNextHop } = peer;
  const { gracefulRestartSeconds, reflectorClusterId } = peer;
  checkPeer(plan, peer);
  const family = ipFamilyOf(address);
  // One socket for all addresses would take the port of each, and the session would never start. So
  // BIRD listens at the local address alone, and the port stays free at others.
  const isStrict = peers.every((other) =>
    other.localAddress !== undefined ||
    listeningPort(other) !== listeningPort(peer) ||
    ipFamilyOf(other.address) !== family
  );
  const importFilter = importFilterOf(plan, peer);
  const exported = `  export filter ${exportFilterOf(plan, peer)};`;
  const digit = FAMILY_DIGIT[family];
  const settings = [
    ...(isShutDown ? ["disabled;"] : []),
    [
      "local",
      ...localAddress ? [localAddress] : [],
      `port ${listeningPort(peer)}`,
      `as ${localAs};`,
    ]
      .join(" "),
    `neighbor ${address} port ${port} as ${as};`,
    multihopTtl === undefined ? "direct;" : `multihop ${multihopTtl};`,
    ...(isStrict ? ["strict bind on;"] : []),
    ...(hasPassword(peer) ? [`password ${passwordOf(name)};`] : []),
    `hold time ${peer.holdTimeSeconds};`,
    // BIRD's own values, up to 5 minutes, are those of a router with a thousand peers.
    "connect delay time 1;",
    "connect retry time 10;",
    "error wait time 2, 30;",
    `bfd ${peer.bfd ? "on" : "off"};`,
    ...(gracefulRestartSeconds === undefined
      ? ["graceful restart off;"]
      : ["graceful restart on;", `graceful restart time ${gracefulRestartSeconds};`]),
    ...(role === "reflector-client" ? ["rr client;"] : []),
    ...(role === "reflector-client" && reflectorClusterId !== undefined
      ? [`rr cluster id ${reflectorClusterId};`]
      : []),
    `ipv${digit} {`,
    ...(importFilter === undefined ? ["  import none;"] : [
      `  import filter ${importFilter};`,
      // A changed filter then applies to what the peer has sent already. Without the table BIRD
      // asks the peer to send it again, and FRR 8.4 does not answer.
      "  import table on;",
      `  receive limit ${imports.limitPerPeer} action disable;`,
    ]),
    exported,
    ...(peer.nextHopSelf ? ["  next hop self;"] : []),
    ...(multihopTtl === undefined ? [] : [`  igp table connected${digit};`]),
    "};",
    ...(otherNextHop === undefined ? [] : [
      `ipv${FAMILY_DIGIT[family === "IPv4" ? "IPv6" : "IPv4"]} {`,
      // What is accepted is configured for the family of the session.
      "  import none;",
      exported,
      `  next hop address ${otherNextHop};`,
      "};",
    ]),
  ];
  return [`protocol bgp ${protocolOf(name)} {`, ...settings.map((line) => `  ${line}`), "}"];
}

/** The configuration is one text, so a value that BIRD refuses would stop all other peers. */
function checkPeer({ localAs }: BgpPlan, peer: BgpPeer): void {
  const { address, as, holdTimeSeconds, localAddress, name, role } = peer;
  // A Node may have a link-local address, which BIRD refuses without an interface.
  const isLinkLocal = (address: IpAddress | undefined) => /^fe[89ab]/.test(address ?? "");
  const why = "link-local addresses belong to one interface; use another address of";
  const isKnownTime = holdTimeSeconds === 0 || holdTimeSeconds >= 3 && holdTimeSeconds <= 65_535;
  const problem = role === "reflector-client" && as !== localAs
    ? `reflect routes to peer ${name} with AS ${as}: expected the node's AS ${localAs}`
    : !isKnownTime
    ? `use hold time ${holdTimeSeconds} of peer ${name}: expected 0 or 3 to 65535 seconds`
    : localAddress !== undefined && ipFamilyOf(localAddress) !== ipFamilyOf(address)
    ? `reach peer ${name} at ${address} from ${localAddress}: expected two addresses of one family`
    : isLinkLocal(address)
    ? `reach peer ${name} at ${address}: ${why} the peer`
    : isLinkLocal(localAddress)
    ? `reach peer ${name} from ${localAddress}: ${why} this node`
    : undefined;
  if (problem !== undefined) throw new RangeError(`Cannot ${problem}`);
}

/** Nodes expect each other at one port, so the node listens on the port at which it calls them. */
function listeningPort({ port, role }: BgpPeer): number {
  return role === "external" ? BGP_PORT : port;
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
  // With everything in them.
  const ranges = (prefixes: readonly Cidr[]) =>
    ofFamily(prefixes, family).map((each) => `${each}+`);
  const refused = whereIn(ranges(imports.refused), "reject;");
  // A wide prefix in the configuration does not admit the default route.
  const defaultRoute = (isAccepted: boolean) =>
    `if net.len = 0 then ${isAccepted ? "accept" : "reject"};`;
  const { import: own } = peer;
  if (own) {
    return [
      defaultRoute(own.defaultRoute),
      ...whereIn(own.clusterPrefixes.map(ofLengths), "accept;"),
      ...refused,
      ...whereIn(own.prefixes.map(ofLengths), "accept;"),
    ];
  }
  const mark = source === "mesh" ? `${LEARNED_FROM_MESH} = 1; ` : "";
  return [
    ...refused,
    defaultRoute(source === "external" && imports.defaultRoute),
    ...whereIn(ranges(imports[source]), `{ ${mark}accept; }`),
  ];
}

/** The configured ranges that apply to a peer. */
function sourceOf({ role }: BgpPeer): "external" | "mesh" {
  return role === "external" ? "external" : "mesh";
}

/** An action for prefixes of a set such as `[ 10.0.0.0/8+ ]`. BIRD has no empty set. */
function whereIn(patterns: readonly string[], action: string): string[] {
  return patterns.length === 0 ? [] : [`if net ~ [ ${patterns.join(", ")} ] then ${action}`];
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

/** The constant that identifies the configuration in force. A BIRD without it is a foreign one. */
export const CONFIGURATION_ID = "kube_relay_configuration";
/** The constant that identifies the passwords in force. */
export const SECRETS_ID = "kube_relay_secrets";
/** The attribute of a route that a node of the cluster announced. */
const LEARNED_FROM_MESH = "kube_relay_from_mesh";

/** Every role of a peer. */
const ROLES: readonly BgpPeer["role"][] = ["external", "mesh", "reflector-client"];

/** The end of names that exist for each family. */
const FAMILY_DIGIT: Readonly<Record<IpFamily, "4" | "6">> = { IPv4: "4", IPv6: "6" };

/** The attribute of routes that are announced to peers of a role. */
function announcesTo(role: BgpPeer["role"]): string {
  return `kube_relay_to_${symbolOf(role)}`;
}

/** A role as a part of a name. */
function symbolOf(role: BgpPeer["role"]): string {
  return role.replaceAll("-", "_");
}

const PEER_PREFIX = "peer_";
const PASSWORD_PREFIX = "password_";
/** BIRD's limit for a name is 64 characters, and the longer prefix is that of the password. */
const LONGEST_PEER_NAME = 64 - PASSWORD_PREFIX.length;

/**
 * The protocol of a peer. The prefix keeps names of peers apart from keywords of BIRD and from other
 * protocols. Throws a RangeError for a name that BIRD cannot take.
 */
export function protocolOf(peerName: string): string {
  if (/^[A-Za-z]\w*$/.test(peerName) && peerName.length <= LONGEST_PEER_NAME) {
    return PEER_PREFIX + peerName;
  }
  throw new RangeError(
    `Cannot use peer name '${peerName}': expected a letter, then letters, digits and '_', ` +
      `at most ${LONGEST_PEER_NAME} characters`,
  );
}

/** The peer of a protocol; `undefined` if the protocol is not that of a peer. */
export function peerOf(protocol: string): string | undefined {
  return protocol.startsWith(PEER_PREFIX) ? protocol.slice(PEER_PREFIX.length) : undefined;
}

/** The constant that holds the password of a peer. */
export function passwordOf(peerName: string): string {
  return PASSWORD_PREFIX + protocolOf(peerName).slice(PEER_PREFIX.length);
}

/** A text in quotes. BIRD has no escapes: a text with a quote or a control character is a RangeError. */
export function quoted(text: string): string {
  // deno-lint-ignore no-control-regex -- control characters are what is refused
  if (/["\x00-\x1f\x7f]/.test(text)) {
    throw new RangeError("a double quote or a control character, which BIRD cannot read");
  }
  return `"${text}"`;
}
