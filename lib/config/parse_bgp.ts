import { type Cidr, cidrFamilyOf, prefixLengthOf } from "../net/cidr.ts";
import {
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isUnspecified,
  tryParseIpAddress,
} from "../net/ip_address.ts";
import { type Port, tryParsePort } from "../net/port.ts";
import { type ImportedPrefix, LONGEST_PREFIX, type PeerImports } from "../routing/bgp_plan.ts";
import { peerName } from "../routing/node_bgp.ts";
import type { BgpSettings, ConfiguredPeer } from "../routing/routing_settings.ts";
import { checkCidr, type Expect } from "./expectation.ts";
import { parseSelector } from "./parse_pools.ts";
import {
  type BgpConfiguration,
  DEFAULT_PEER,
  type ImportedPrefixConfiguration,
  type PeerConfiguration,
  type PeerImportConfiguration,
} from "./routing.ts";

/** AS numbers that stand for others or are reserved (RFC 6793, RFC 7300). */
const UNUSABLE_AS: readonly number[] = [0, 23_456, 65_535, 4_294_967_295];
/** A name of BIRD has at most 64 bytes, some of which its driver needs. */
const NAME = /^[A-Za-z][A-Za-z0-9_]{0,54}$/;
/** Longest path of a Unix socket in bytes, without the zero at its end. */
const LONGEST_SOCKET_PATH = 107;
const LONGEST_PATH = 4_095;

/** Parses the block `routing.bgp` and reports each invalid value. */
export function parseBgp(bgp: BgpConfiguration, expect: Expect): BgpSettings {
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

function parsePeers(given: BgpConfiguration["peers"], expect: Expect): readonly ConfiguredPeer[] {
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
  const name = configuration.name === "" ? peerName(address) : configuration.name;
  expect(
    NAME.test(name),
    `${path}.name`,
    `Expected at most 55 letters, digits and '_' after a letter, found '${name}'`,
  );
  const nodeSelector = parseSelector(configuration.nodeSelector, `${path}.nodeSelector`, expect);
  const { multihopTtl, gracefulRestartSeconds, import: given } = configuration;
  return {
    ...{ name, address, as, port: port as Port },
    ...(localAddress && { localAddress }),
    ...(passwordFile !== "" && { passwordFile }),
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

function parseAddress(text: string, path: string, expect: Expect): IpAddress | undefined {
  const address = tryParseIpAddress(text);
  const isUsable = address !== undefined && !isUnspecified(address);
  expect(isUsable, path, `Expected an IP address such as 192.0.2.1, found '${text}'`);
  return isUsable ? address : undefined;
}

/** Parses what is accepted from a peer. */
function parseImports(
  { prefixes, clusterPrefixes, defaultRoute }: PeerImportConfiguration,
  family: IpFamily,
  path: string,
  expect: Expect,
): PeerImports {
  const parse = (given: PeerImportConfiguration["prefixes"], path: string) =>
    given.flatMap((entry, index): ImportedPrefix[] => {
      const isText = typeof entry === "string";
      const at = `${path}.${index}`;
      const { prefix: text, ...lengths } = isText
        ? { prefix: entry, minLength: 0, maxLength: 0 }
        : entry;
      const prefix = parsePrefix(text, family, isText ? at : `${at}.prefix`, expect);
      return prefix ? [{ prefix, ...parseLengths(lengths, prefix, at, expect) }] : [];
    });
  return {
    prefixes: parse(prefixes, `${path}.prefixes`),
    clusterPrefixes: parse(clusterPrefixes, `${path}.clusterPrefixes`),
    defaultRoute,
  };
}

/** A session carries the prefixes of the family of its addresses. */
function parsePrefix(
  text: string,
  family: IpFamily,
  path: string,
  expect: Expect,
): Cidr | undefined {
  const prefix = checkCidr(expect, path, text);
  const isUsable = prefix !== undefined && cidrFamilyOf(prefix) === family;
  expect(
    prefix === undefined || isUsable,
    path,
    `Expected an ${family} prefix, as the address of the peer, found '${text}'`,
  );
  return isUsable ? prefix : undefined;
}

function parseLengths(
  { minLength, maxLength }: Omit<ImportedPrefixConfiguration, "prefix">,
  prefix: Cidr,
  path: string,
  expect: Expect,
): Omit<ImportedPrefix, "prefix"> {
  const [own, longest] = [prefixLengthOf(prefix), LONGEST_PREFIX[cidrFamilyOf(prefix)]];
  expect(
    own > 0 || minLength > 0,
    path,
    `Expected a minLength of 1 or more for ${prefix}, found none; set defaultRoute to accept a ` +
      "default route",
  );
  const check = (field: string, value: number, from: number) =>
    expect(
      value === 0 || value >= from && value <= longest,
      `${path}.${field}`,
      `Expected a number from ${from} to ${longest} for ${prefix}, found ${value}`,
    );
  check("minLength", minLength, own);
  const least = Math.max(own, minLength);
  check("maxLength", maxLength, least);
  return { minLength: least, maxLength: maxLength || longest };
}
