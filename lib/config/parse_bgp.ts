import { type Cidr, prefixLengthOf } from "../net/cidr.ts";
import { type IpAddress, ipFamilyOf, isUnspecified, tryParseIpAddress } from "../net/ip_address.ts";
import { type Port, tryParsePort } from "../net/port.ts";
import { peerName } from "../routing/node_bgp.ts";
import type { BgpSettings, ConfiguredPeer } from "../routing/routing_settings.ts";
import { checkCidr, type Expect } from "./expectation.ts";
import { parsePeerImports } from "./parse_peer_imports.ts";
import { parseSelector } from "./parse_pools.ts";
import type { BgpConfiguration, PeerConfiguration } from "./routing.ts";
import { DEFAULT_PEER } from "./routing.ts";

/** A value, its place in the configuration, and the collector of problems. */
interface Place {
  readonly path: string;
  readonly expect: Expect;
}

/** AS numbers that stand for others or are reserved (RFC 6793, RFC 7300). */
const UNUSABLE_AS: readonly number[] = [0, 23_456, 65_535, 4_294_967_295];
/** A name of BIRD has at most 64 bytes, some of which its driver needs. */
const NAME = /^[A-Za-z][A-Za-z0-9_]{0,54}$/;
/** Longest path of a Unix socket in bytes, without the zero at its end. */
const LONGEST_SOCKET_PATH = 107;

/** Parses the block `routing.bgp` and reports each invalid value. */
export function parseBgp(bgp: BgpConfiguration, expect: Expect): BgpSettings {
  const { localAs, routerId, advertise, localPreference, imports } = bgp;
  if (localAs !== 0) checkAs(localAs, { path: "routing.bgp.localAs", expect });
  if (routerId !== "") checkRouterId(routerId, expect);
  const externalIpRanges = parseCidrs(bgp.externalIpRanges, {
    path: "routing.bgp.externalIpRanges",
    expect,
  });
  expect(
    !advertise.externalIps || externalIpRanges.length > 0,
    "routing.bgp.externalIpRanges",
    "Expected at least one CIDR, since advertise.externalIps is true; found none. Every user who may " +
      "create Services chooses their external IPs",
  );
  return {
    ...(localAs !== 0 && { localAs }),
    ...(routerId !== "" && { routerId }),
    mesh: bgp.mesh,
    nodeAnnotations: bgp.nodeAnnotations,
    peers: parsePeers(bgp.peers, expect),
    advertise,
    externalIpRanges,
    communities: parseCommunities(bgp.communities, {
      ...{ path: "routing.bgp.communities", expect },
      ...{ parts: 2, most: 65_535, example: "64512:100" },
    }),
    largeCommunities: parseCommunities(bgp.largeCommunities, {
      ...{ path: "routing.bgp.largeCommunities", expect },
      ...{ parts: 3, most: 4_294_967_295, example: "64512:1:100" },
    }),
    ...(localPreference !== 0 && { localPreference }),
    imports: { ...imports, external: parseImports(imports.external, expect) },
    controlSocket: checkPath(bgp.controlSocket, {
      path: "routing.bgp.controlSocket",
      expect,
      most: LONGEST_SOCKET_PATH,
    }),
    configFile: checkPath(bgp.configFile, { path: "routing.bgp.configFile", expect }),
  };
}

function checkAs(as: number, { path, expect }: Place): void {
  expect(
    !UNUSABLE_AS.includes(as),
    path,
    `Expected an AS number that is not reserved, such as 64512, found ${as}`,
  );
}

function checkRouterId(routerId: string, expect: Expect): void {
  const address = tryParseIpAddress(routerId);
  expect(
    address === routerId && ipFamilyOf(address) === "IPv4" && !isUnspecified(address),
    "routing.bgp.routerId",
    `Expected an IPv4 address such as 192.0.2.1, also for IPv6, found '${routerId}'`,
  );
}

function parseCidrs(texts: readonly string[], { path, expect }: Place): readonly Cidr[] {
  return texts.flatMap((text, index) => checkCidr(expect, `${path}.${index}`, text) ?? []);
}

function parseImports(texts: readonly string[], expect: Expect): readonly Cidr[] {
  const path = "routing.bgp.imports.external";
  const cidrs = parseCidrs(texts, { path, expect });
  expect(
    cidrs.every((cidr) => prefixLengthOf(cidr) > 0),
    path,
    "Expected ranges of routes, found all addresses; set imports.defaultRoute to accept a default " +
      "route",
  );
  return cidrs;
}

function parseCommunities(
  texts: readonly string[],
  { path, expect, parts, most, example }: Place & {
    readonly parts: number;
    readonly most: number;
    readonly example: string;
  },
): readonly string[] {
  for (const [index, text] of texts.entries()) {
    const numbers = text.split(":");
    expect(
      numbers.length === parts &&
        numbers.every((each) => /^(?:0|[1-9]\d{0,9})$/.test(each) && Number(each) <= most),
      `${path}.${index}`,
      `Expected ${parts} numbers from 0 to ${most} such as ${example}, found '${text}'`,
    );
  }
  return texts;
}

function checkPath(
  value: string,
  { path, expect, most = 4_095 }: Place & { readonly most?: number },
): string {
  const { length } = new TextEncoder().encode(value);
  expect(
    // BIRD's configuration and its control protocol are lines.
    /^\/[^\0\r\n"]+$/.test(value) && length <= most,
    path,
    `Expected an absolute path of at most ${most} bytes without quotes and line breaks, found ` +
      `'${value}'`,
  );
  return value;
}

function parsePeers(
  given: BgpConfiguration["peers"],
  expect: Expect,
): readonly ConfiguredPeer[] {
  const names = new Set<string>();
  const targets = new Set<string>();
  return given.flatMap((entry, index) => {
    const place = { path: `routing.bgp.peers.${index}`, expect };
    const configuration = typeof entry === "string" ? peerOfText(entry, place) : entry;
    const peer = configuration && parsePeer(configuration, place);
    if (!peer) return [];
    const target = `${peer.address} ${peer.port}`;
    expect(
      !targets.has(target),
      place.path,
      `Expected each peer once, found ${peer.address} port ${peer.port} again`,
    );
    expect(
      !names.has(peer.name),
      place.path,
      `Expected each name once, found '${peer.name}' again`,
    );
    names.add(peer.name);
    targets.add(target);
    return [peer];
  });
}

/** Parses `AS@ADDRESS` or `AS@ADDRESS:PORT`, with brackets around IPv6 before a port. */
function peerOfText(text: string, { path, expect }: Place): PeerConfiguration | undefined {
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
  { path, expect }: Place,
): ConfiguredPeer | undefined {
  const address = parseAddress(configuration.address, { path: `${path}.address`, expect });
  if (address === undefined) return undefined;
  const { localAddress: local, passwordFile, multihopTtl, gracefulRestartSeconds } = configuration;
  checkAs(configuration.as, { path: `${path}.as`, expect });
  const localAddress = local === ""
    ? undefined
    : parseAddress(local, { path: `${path}.localAddress`, expect });
  expect(
    localAddress === undefined || ipFamilyOf(localAddress) === ipFamilyOf(address),
    `${path}.localAddress`,
    `Expected an ${ipFamilyOf(address)} address, as that of the peer, found '${local}'`,
  );
  const { bothFamilies, otherNextHop: hop } = configuration;
  const otherNextHop = hop === ""
    ? undefined
    : parseAddress(hop, { path: `${path}.otherNextHop`, expect });
  expect(
    otherNextHop === undefined || bothFamilies && ipFamilyOf(otherNextHop) !== ipFamilyOf(address),
    `${path}.otherNextHop`,
    `Expected an address of the family that ${address} does not have, together with ` +
      `bothFamilies: true, found '${hop}'`,
  );
  if (passwordFile !== "") checkPath(passwordFile, { path: `${path}.passwordFile`, expect });
  const name = configuration.name === "" ? peerName(address) : configuration.name;
  expect(
    NAME.test(name),
    `${path}.name`,
    `Expected at most 55 letters, digits and '_' after a letter, found '${name}'`,
  );
  const nodeSelector = parseSelector(configuration.nodeSelector, {
    path: `${path}.nodeSelector`,
    expect,
  });
  return {
    name,
    address,
    port: configuration.port as Port,
    as: configuration.as,
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
    ...(configuration.import && {
      import: parsePeerImports(configuration.import, {
        ...{ path: `${path}.import`, expect, family: ipFamilyOf(address) },
      }),
    }),
    ...(nodeSelector && { nodeSelector }),
  };
}

function parseAddress(text: string, { path, expect }: Place): IpAddress | undefined {
  const address = tryParseIpAddress(text);
  const isUsable = address !== undefined && !isUnspecified(address);
  expect(isUsable, path, `Expected an IP address such as 192.0.2.1, found '${text}'`);
  return isUsable ? address : undefined;
}
