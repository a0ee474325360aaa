import { didYouMean } from "../api/nearest_name.ts";
import { ProblemCollector } from "../api/problem.ts";
import { checkCidr, collectProblems, type Expect, type ValidationProblem } from "./expectation.ts";
import {
  type BgpConfiguration,
  DEFAULT_PEER,
  DEFAULT_POOL,
  type PeerConfiguration,
  type PeerImportConfiguration,
  type PoolConfiguration,
  ROUTING_CHOICES,
  type RoutingConfiguration,
  type SelectorConfiguration,
} from "./routing.ts";
import { type AddressRange, overlap, tryParseAddressRange } from "../net/address_range.ts";
import { type Cidr, cidrFamilyOf, prefixLengthOf } from "../net/cidr.ts";
import { isInterfaceName, LONGEST_INTERFACE_NAME } from "../net/interface_name.ts";
import {
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isUnspecified,
  tryParseIpAddress,
} from "../net/ip_address.ts";
import { type Port, tryParsePort } from "../net/port.ts";
import { type LabelSelector, parseLabelSelector } from "../policy/label_selector.ts";
import { type AddressPool, type AnnounceMethod, UNUSABLE_RANGES } from "../routing/address_pool.ts";
import { LONGEST_PREFIX, type PeerImports, peerName } from "../routing/bgp_plan.ts";
import {
  type BgpSettings,
  type ConfiguredPeer,
  POD_ROUTE_METRIC,
  type RoutingSettings,
} from "../routing/routing_settings.ts";

const LABEL = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;
const DEFAULT_CLASS = "kube-relay.io/load-balancer";
/** The API server refuses any other class. */
const CLASS = /^(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?\/)?[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?$/;

/** Returns the settings of a valid configuration. Throws a TypeError for any other, which is a bug. */
export function routingSettingsOf(routing: RoutingConfiguration): RoutingSettings {
  const problems: ValidationProblem[] = [];
  const settings = parseRouting(routing, collectProblems(problems));
  const [problem] = problems;
  if (problem) throw new TypeError(`Cannot use ${problem.path}: ${problem.message}`);
  return settings;
}

/**
 * Parses the block, and reports each invalid value. Does so even if the block is disabled, because a
 * flag may enable it.
 */
export function parseRouting(routing: RoutingConfiguration, expect: Expect): RoutingSettings {
  const { loadBalancerClasses: classes, leaseNamespace, layer2, bgp } = routing;
  for (const [index, name] of classes.entries()) {
    expect(
      CLASS.test(name),
      `routing.loadBalancerClasses.${index}`,
      `Expected a class such as ${DEFAULT_CLASS}, found '${name}'`,
    );
  }
  expect(
    LABEL.test(leaseNamespace),
    "routing.leaseNamespace",
    `Expected the name of a namespace, found '${leaseNamespace}'`,
  );
  for (const [index, name] of layer2.interfaces.entries()) {
    expect(
      isInterfaceName(name),
      `routing.layer2.interfaces.${index}`,
      `Expected the name of an interface, at most ${LONGEST_INTERFACE_NAME} bytes without blank, ` +
        `slash or colon, found '${name}'`,
    );
  }
  const pools = parsePools(routing, expect);
  const podNetwork = parsePodNetwork(routing, expect);
  const settings = parseBgp(bgp, expect);
  return {
    loadBalancerClasses: classes.length === 0 ? [DEFAULT_CLASS] : classes,
    defaultLoadBalancerClass: routing.defaultLoadBalancerClass,
    pools,
    objects: routing.objects,
    leaseNamespace,
    leaseDurationSeconds: routing.leaseDurationSeconds,
    layer2,
    ...(podNetwork && { podNetwork }),
    ...(bgp.enabled && { bgp: settings }),
  };
}

/** The smallest MTU of IPv6, which pods may have. */
const SMALLEST_MTU = 1_280;

/** Parses the block `routing.podNetwork`; `undefined` if all its parts are off. */
function parsePodNetwork(
  { podNetwork, bgp: { imports } }: Pick<RoutingConfiguration, "podNetwork" | "bgp">,
  expect: Expect,
): RoutingSettings["podNetwork"] {
  const { routes, cniConfig, mtu, portMappings, masquerade } = podNetwork;
  const overlay = ROUTING_CHOICES.overlay.find((each) => each === podNetwork.overlay) ?? "off";
  expect(
    overlay === podNetwork.overlay,
    "routing.podNetwork.overlay",
    `Expected one of ${ROUTING_CHOICES.overlay.join(", ")}, found '${podNetwork.overlay}'`,
  );
  expect(
    cniConfig === "" || /^\/.*[^/]\.conflist$/.test(cniConfig),
    "routing.podNetwork.cniConfig",
    `Expected an absolute path that ends in .conflist, found '${cniConfig}'`,
  );
  expect(
    mtu === 0 || mtu >= SMALLEST_MTU,
    "routing.podNetwork.mtu",
    `Expected 0 or at least ${SMALLEST_MTU}, which IPv6 needs, found ${mtu}`,
  );
  if (!routes && overlay === "off" && cniConfig === "") return undefined;
  expect(
    imports.metric !== POD_ROUTE_METRIC,
    "routing.bgp.imports.metric",
    `Expected another metric than ${imports.metric}, which routes of routing.podNetwork have`,
  );
  return {
    routes: routes || overlay !== "off",
    overlay,
    ...(cniConfig !== "" && { cniConfig }),
    ...(mtu !== 0 && { mtu }),
    portMappings,
    masquerade,
  };
}

const POOL_NAME = /^[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?$/;

/** A range and its place in the configuration. */
interface PlacedRange extends AddressRange {
  readonly path: string;
  readonly pool: string;
  readonly text: string;
}

/** Parses the pools and reports each invalid value. */
export function parsePools(routing: RoutingConfiguration, expect: Expect): readonly AddressPool[] {
  const ranges: PlacedRange[] = [];
  const pools = new Map<string, AddressPool>();
  for (const [index, given] of routing.pools.entries()) {
    const path = `routing.pools.${index}`;
    const isText = typeof given === "string";
    const pool = isText ? poolOfText(given) : given;
    const { name, addresses } = pool;
    expect(
      POOL_NAME.test(name),
      isText ? path : `${path}.name`,
      "Expected a name of at most 63 small letters, digits and '-', with a letter or digit at both " +
        `ends, found '${name}'`,
    );
    const known = pools.get(name);
    expect(known === undefined || isText, path, `Expected each pool once, found '${name}' again`);
    expect(addresses.length > 0, `${path}.addresses`, "Expected at least one range, found none");
    const own: AddressRange[] = [];
    for (const [index, text] of addresses.entries()) {
      const place = isText ? path : `${path}.addresses.${index}`;
      const range = tryParseAddressRange(text);
      expect(
        range !== undefined,
        place,
        `Expected a CIDR such as 192.0.2.0/24 or a range such as 192.0.2.10-192.0.2.20, found '${text}'`,
      );
      if (!range) continue;
      expect(
        !UNUSABLE_RANGES.some((other) => overlap(range, other)),
        place,
        "Expected addresses that are not unspecified, loopback, link-local, multicast or reserved, " +
          `found '${text}'`,
      );
      own.push(range);
      ranges.push({ ...range, path: place, pool: name, text });
    }
    pools.set(name, {
      ...known ?? parsePool(pool, routing, path, expect),
      ranges: [...known?.ranges ?? [], ...own],
    });
  }
  // An address in two pools would have two rules.
  const sorted = ranges.toSorted((left, right) =>
    left.family.localeCompare(right.family) || (left.first < right.first ? -1 : 1)
  );
  let widest: PlacedRange | undefined;
  for (const range of sorted) {
    if (widest && overlap(widest, range)) {
      expect(
        false,
        range.path,
        `Expected addresses that no other range has, found '${range.text}', which overlaps ` +
          `'${widest.text}' of pool '${widest.pool}'`,
      );
      if (range.last <= widest.last) continue;
    }
    widest = range;
  }
  return [...pools.values()];
}

/** Parses `NAME=ADDRESSES` or `ADDRESSES`. */
function poolOfText(text: string): PoolConfiguration {
  const equals = text.indexOf("=");
  return {
    ...DEFAULT_POOL,
    ...(equals >= 0 && { name: text.slice(0, equals).trim() }),
    addresses: [text.slice(equals + 1).trim()],
  };
}

function parsePool(
  { name, autoAssign, priority, announce: given, ...selectors }: PoolConfiguration,
  routing: RoutingConfiguration,
  path: string,
  expect: Expect,
): Omit<AddressPool, "ranges"> {
  const announce = given === "" ? routing.announce : given;
  const field = given === "" ? "routing.announce" : `${path}.announce`;
  const choices: readonly string[] = ROUTING_CHOICES.announce;
  expect(
    choices.includes(announce),
    field,
    `Expected one of ${choices.join(", ")}, found '${announce}'${didYouMean(announce, choices)}`,
  );
  expect(
    announce !== "bgp" || routing.bgp.enabled,
    field,
    "Expected layer2 or none, since routing.bgp.enabled is false; found 'bgp'",
  );
  const found: Record<string, LabelSelector> = {};
  for (const field of ["namespaceSelector", "serviceSelector", "nodeSelector"] as const) {
    const selector = parseSelector(selectors[field], `${path}.${field}`, expect);
    if (selector) found[field] = selector;
  }
  return {
    ...{ name, autoAssign, announce: announce as AnnounceMethod, ...found },
    ...(priority > 0 && { priority }),
  };
}

/** Parses a selector; `undefined` stands for one that selects everything. */
function parseSelector(
  selector: SelectorConfiguration | null | undefined,
  path: string,
  expect: Expect,
): LabelSelector | undefined {
  if (!selector) return undefined;
  const { matchLabels, matchExpressions = [] } = selector;
  for (const [index, { operator, values = [] }] of matchExpressions.entries()) {
    const needsValues = operator === "In" || operator === "NotIn";
    expect(
      needsValues === values.length > 0,
      `${path}.matchExpressions.${index}.values`,
      needsValues
        ? `Expected at least one value for the operator ${operator}, found none`
        : `Expected nothing for the operator ${operator}, found values`,
    );
  }
  const expressions = matchExpressions
    .map(({ key, operator, values }) => ({ key, operator, ...(values && { values }) }));
  return parseLabelSelector(
    { ...(matchLabels && { matchLabels }), matchExpressions: expressions },
    path,
    new ProblemCollector("KubeProxyConfiguration", path),
  );
}

/** AS numbers that stand for others or are reserved (RFC 6793, RFC 7300). */
const UNUSABLE_AS: readonly number[] = [0, 23_456, 65_535, 4_294_967_295];
/** A name of BIRD has at most 64 bytes, some of which its driver needs. */
const PEER_NAME = /^[A-Za-z][A-Za-z0-9_]{0,54}$/;
/** Longest path of a Unix socket in bytes, without the zero at its end. */
const LONGEST_SOCKET_PATH = 107;
const LONGEST_PATH = 4_095;

/** Parses the block `routing.bgp` and reports each invalid value. */
function parseBgp(bgp: BgpConfiguration, expect: Expect): BgpSettings {
  const at = "routing.bgp";
  const { localAs, routerId, advertise, localPreference, imports } = bgp;
  if (localAs !== 0) checkAs(localAs, `${at}.localAs`, expect);
  const router = tryParseIpAddress(routerId);
  expect(
    routerId === "" || router === routerId && ipFamilyOf(router) === "IPv4" &&
        !isUnspecified(router),
    `${at}.routerId`,
    `Expected an IPv4 address such as 192.0.2.1, also for IPv6, found '${routerId}'`,
  );
  const externalIpRanges = parseCidrs(bgp.externalIpRanges, `${at}.externalIpRanges`, expect);
  expect(
    !advertise.externalIps || externalIpRanges.length > 0,
    `${at}.externalIpRanges`,
    "Expected at least one CIDR, since advertise.externalIps is true; found none. Every user who may " +
      "create Services chooses their external IPs",
  );
  const peers = parsePeers(bgp.peers, expect);
  checkCommunities(bgp.communities, `${at}.communities`, expect, [2, 65_535, "64512:100"]);
  checkCommunities(bgp.largeCommunities, `${at}.largeCommunities`, expect, [
    ...[3, 4_294_967_295] as const,
    "64512:1:100",
  ]);
  const external = parseCidrs(imports.external, `${at}.imports.external`, expect);
  expect(
    external.every((cidr) => prefixLengthOf(cidr) > 0),
    `${at}.imports.external`,
    "Expected ranges of routes, found all addresses; set imports.defaultRoute to accept a default " +
      "route",
  );
  checkPath(bgp.controlSocket, `${at}.controlSocket`, expect, LONGEST_SOCKET_PATH);
  checkPath(bgp.configFile, `${at}.configFile`, expect);
  return {
    ...(localAs !== 0 && { localAs }),
    ...(routerId !== "" && { routerId }),
    mesh: bgp.mesh,
    nodeAnnotations: bgp.nodeAnnotations,
    peers,
    advertise,
    externalIpRanges,
    communities: bgp.communities,
    largeCommunities: bgp.largeCommunities,
    ...(localPreference !== 0 && { localPreference }),
    imports: { ...imports, external },
    controlSocket: bgp.controlSocket,
    configFile: bgp.configFile,
  };
}

function checkAs(as: number, path: string, expect: Expect): void {
  expect(
    !UNUSABLE_AS.includes(as),
    path,
    `Expected an AS number that is not reserved, such as 64512, found ${as}`,
  );
}

function parseCidrs(texts: readonly string[], path: string, expect: Expect): readonly Cidr[] {
  return texts.flatMap((text, index) => checkCidr(expect, `${path}.${index}`, text) ?? []);
}

function checkCommunities(
  texts: readonly string[],
  path: string,
  expect: Expect,
  [parts, most, example]: readonly [parts: number, most: number, example: string],
): void {
  for (const [index, text] of texts.entries()) {
    const numbers = text.split(":");
    expect(
      numbers.length === parts &&
        numbers.every((each) => /^(?:0|[1-9]\d{0,9})$/.test(each) && Number(each) <= most),
      `${path}.${index}`,
      `Expected ${parts} numbers from 0 to ${most} such as ${example}, found '${text}'`,
    );
  }
}

function checkPath(value: string, path: string, expect: Expect, most = LONGEST_PATH): void {
  const { length } = new TextEncoder().encode(value);
  expect(
    // BIRD's configuration and its control protocol are lines.
    /^\/[^\0\r\n"]+$/.test(value) && length <= most,
    path,
    `Expected an absolute path of at most ${most} bytes without quotes and line breaks, found ` +
      `'${value}'`,
  );
}

export function parsePeers(
  given: BgpConfiguration["peers"],
  expect: Expect,
): readonly ConfiguredPeer[] {
  const names = new Set<string>();
  const targets = new Set<string>();
  return given.flatMap((entry, index) => {
    const path = `routing.bgp.peers.${index}`;
    const configuration = typeof entry === "string" ? peerOfText(entry, path, expect) : entry;
    const peer = configuration && parsePeer(configuration, path, expect);
    if (!peer) return [];
    const { name, address, port } = peer;
    const target = `${address} ${port}`;
    const again = `Expected each peer once, found ${address} port ${port} again`;
    expect(!targets.has(target), path, again);
    expect(!names.has(name), path, `Expected each name once, found '${name}' again`);
    names.add(name);
    targets.add(target);
    return [peer];
  });
}

/** Parses `AS@ADDRESS` or `AS@ADDRESS:PORT`, with brackets around IPv6 before a port. */
function peerOfText(text: string, path: string, expect: Expect): PeerConfiguration | undefined {
  const [, as, rest = ""] = /^(\d{1,10})@(.+)$/.exec(text) ?? [];
  const [, bracketed, dotted, digits] = /^(?:\[([^\]]+)\]|([\d.]+)):(\d+)$/.exec(rest) ?? [];
  const address = tryParseIpAddress(bracketed ?? dotted ?? rest);
  const port = digits === undefined ? DEFAULT_PEER.port : tryParsePort(digits);
  const isValid = as !== undefined && address !== undefined && port !== undefined;
  expect(
    isValid,
    path,
    "Expected a peer such as 64512@192.0.2.1, 64512@192.0.2.1:1790 or 64512@[2001:db8::1]:1790, " +
      `found '${text}'`,
  );
  return isValid ? { ...DEFAULT_PEER, address, port, as: Number(as) } : undefined;
}

function parsePeer(
  configuration: PeerConfiguration,
  path: string,
  expect: Expect,
): ConfiguredPeer | undefined {
  const { as, port, localAddress: local, otherNextHop: hop, bothFamilies, passwordFile } =
    configuration;
  const address = parseAddress(configuration.address, `${path}.address`, expect);
  if (address === undefined) return undefined;
  const family = ipFamilyOf(address);
  checkAs(as, `${path}.as`, expect);
  const localAddress = local === ""
    ? undefined
    : parseAddress(local, `${path}.localAddress`, expect);
  expect(
    localAddress === undefined || ipFamilyOf(localAddress) === family,
    `${path}.localAddress`,
    `Expected an ${family} address, as that of the peer, found '${local}'`,
  );
  const otherNextHop = hop === "" ? undefined : parseAddress(hop, `${path}.otherNextHop`, expect);
  expect(
    otherNextHop === undefined || bothFamilies && ipFamilyOf(otherNextHop) !== family,
    `${path}.otherNextHop`,
    `Expected an address of the family that ${address} does not have, together with ` +
      `bothFamilies: true, found '${hop}'`,
  );
  if (passwordFile !== "") checkPath(passwordFile, `${path}.passwordFile`, expect);
  const { passwordSecret } = configuration;
  if (passwordSecret) checkSecret(passwordSecret, `${path}.passwordSecret`, expect);
  expect(
    !passwordSecret || passwordFile === "",
    `${path}.passwordSecret`,
    "Expected one source of the password, found passwordFile, too",
  );
  const name = configuration.name === "" ? peerName(address) : configuration.name;
  expect(
    PEER_NAME.test(name),
    `${path}.name`,
    `Expected at most 55 letters, digits and '_' after a letter, found '${name}'`,
  );
  const nodeSelector = parseSelector(configuration.nodeSelector, `${path}.nodeSelector`, expect);
  const { multihopTtl, gracefulRestartSeconds, import: given } = configuration;
  return {
    ...{ name, address, as, port: port as Port },
    ...(localAddress && { localAddress }),
    ...(passwordFile !== "" && { passwordFile }),
    ...(passwordSecret && { passwordSecret }),
    ...(multihopTtl !== 0 && { multihopTtl }),
    holdTimeSeconds: configuration.holdTimeSeconds,
    bfd: configuration.bfd,
    ...(gracefulRestartSeconds !== 0 && { gracefulRestartSeconds }),
    prepend: configuration.prepend,
    nextHopSelf: configuration.nextHopSelf,
    ...(bothFamilies && { bothFamilies }),
    ...(otherNextHop && { otherNextHop }),
    ...(given && { import: parseImports(given, family, `${path}.import`, expect) }),
    ...(nodeSelector && { nodeSelector }),
  };
}

/** A name of the API, in the path of a request. */
const SECRET_NAME = /^(?=.{1,253}$)[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?$/;
const SECRET_KEY = /^(?!\.\.?$)[-\w.]{1,253}$/;

function checkSecret(
  { name, key }: NonNullable<PeerConfiguration["passwordSecret"]>,
  path: string,
  expect: Expect,
): void {
  const wanted = "Expected the name of a Secret and a key in it, found";
  expect(SECRET_NAME.test(name), `${path}.name`, `${wanted} '${name}'`);
  expect(SECRET_KEY.test(key), `${path}.key`, `${wanted} '${key}'`);
}

function parseAddress(text: string, path: string, expect: Expect): IpAddress | undefined {
  const address = tryParseIpAddress(text);
  const isUsable = address !== undefined && !isUnspecified(address);
  expect(isUsable, path, `Expected an IP address such as 192.0.2.1, found '${text}'`);
  return isUsable ? address : undefined;
}

/** Parses what is accepted from a peer. A session carries the prefixes of the family of its addresses. */
function parseImports(
  { prefixes, clusterPrefixes, defaultRoute }: PeerImportConfiguration,
  family: IpFamily,
  path: string,
  expect: Expect,
): PeerImports {
  const parse = (entry: PeerImportConfiguration["prefixes"][number], at: string) => {
    const isText = typeof entry === "string";
    const { prefix: text, minLength, maxLength } = isText
      ? { prefix: entry, minLength: 0, maxLength: 0 }
      : entry;
    const place = isText ? at : `${at}.prefix`;
    const prefix = checkCidr(expect, place, text);
    if (prefix === undefined) return [];
    if (cidrFamilyOf(prefix) !== family) {
      const found = `Expected an ${family} prefix, as the address of the peer, found '${text}'`;
      expect(false, place, found);
      return [];
    }
    const [own, longest] = [prefixLengthOf(prefix), LONGEST_PREFIX[family]];
    expect(
      own > 0 || minLength > 0,
      at,
      `Expected a minLength of 1 or more for ${prefix}, found none; set defaultRoute to accept a ` +
        "default route",
    );
    const least = Math.max(own, minLength);
    const lengths = [["minLength", minLength, own], ["maxLength", maxLength, least]] as const;
    for (const [field, value, from] of lengths) {
      expect(
        value === 0 || value >= from && value <= longest,
        `${at}.${field}`,
        `Expected a number from ${from} to ${longest} for ${prefix}, found ${value}`,
      );
    }
    return [{ prefix, minLength: least, maxLength: maxLength || longest }];
  };
  return {
    prefixes: prefixes.flatMap((each, index) => parse(each, `${path}.prefixes.${index}`)),
    clusterPrefixes: clusterPrefixes.flatMap((each, index) =>
      parse(each, `${path}.clusterPrefixes.${index}`)
    ),
    defaultRoute,
  };
}
