import { parse } from "@std/yaml";
import { BGP_ANNOTATIONS, PEER_ANNOTATIONS } from "../api/kinds/routed_node.ts";
import { type ObjectProblem, ProblemCollector } from "../api/problem.ts";
import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import {
  addressAt,
  type IpAddress,
  ipFamilyOf,
  isUnspecified,
  tryParseIpAddress,
} from "../net/ip_address.ts";
import { tryParsePort } from "../net/port.ts";
import { peerName } from "./bgp_plan.ts";
import type { RoutingNode } from "./routing_node.ts";
import type { ConfiguredPeer } from "./routing_settings.ts";

/** The BGP settings in the annotations of a Node. */
export interface NodeBgp {
  readonly as?: number;
  /** Cluster ID, as dotted decimal: the node reflects routes to the clients with this ID. */
  readonly reflector?: string;
  /** Cluster ID of the reflectors that the node has sessions with. */
  readonly reflectorClient?: string;
  readonly peers: readonly ConfiguredPeer[];
  readonly communities: readonly string[];
  /** How often the own AS is added to paths. */
  readonly prepend: number;
  /** Never imported. */
  readonly refused: readonly Cidr[];
}

/** Without any annotation. */
export const NO_NODE_BGP: NodeBgp = { peers: [], communities: [], prepend: 0, refused: [] };

/** Longest annotation with peers, and how many peers are read. */
const [MOST_CHARACTERS, MOST_PEERS] = [16_384, 64];
/** A message of BGP has 4 KiB, and each announced prefix gets all of them. */
const MOST_COMMUNITIES = 64;
/** Longer paths are refused by many routers. */
const MOST_PREPENDS = 32;

/** Reads the annotations by kube-router's names. What cannot be used is left out and reported. */
export function nodeBgpOf(
  { name, annotations }: Pick<RoutingNode, "name" | "annotations">,
): { readonly bgp: NodeBgp; readonly problems: readonly ObjectProblem[] } {
  const problems = new ProblemCollector("Node", name);
  const expect: Expect = (isRight, path, value, message) => {
    if (!isRight) problems.report(`metadata.annotations["${path}"]`, value, message);
    return isRight;
  };
  const text = (name: string) => annotations[name]?.trim() || undefined;
  const list = (name: string) => text(name)?.split(",").map((each) => each.trim()) ?? [];
  const number = (name: string, consequence: string, isValid: (value: number) => boolean) => {
    const value = text(name);
    if (value === undefined) return undefined;
    const found = numberOf(value);
    const message = `${consequence}: the number is not valid`;
    return expect(isValid(found), name, value, message) ? found : undefined;
  };
  /** A number, or an IPv4 address. */
  const clusterId = (name: string) => {
    const value = text(name);
    if (value === undefined) return undefined;
    const found = numberOf(value);
    const isNumber = found > 0 && found < 2 ** 32;
    const id = isNumber ? addressAt(BigInt(found), "IPv4") : tryParseIpAddress(value);
    const isValid = id !== undefined && ipFamilyOf(id) === "IPv4" && !isUnspecified(id);
    const message = "The node is neither reflector nor client: the ID has to be a number from 1 " +
      "to 4294967295 or an IPv4 address";
    return expect(isValid, name, value, message) ? id : undefined;
  };
  const { as: asName, communities: communitiesName, prependAs, refused, listenAddresses } =
    BGP_ANNOTATIONS;
  const as = number(asName, "The AS number is not used", isAs);
  const reflector = clusterId(BGP_ANNOTATIONS.reflector);
  const reflectorClient = clusterId(BGP_ANNOTATIONS.reflectorClient);
  const peersText = annotations[PEER_ANNOTATIONS.yaml];
  const peers = peersText === undefined
    ? peersOfLists(list, expect)
    : peersOfYaml(peersText, expect);
  const communities = list(communitiesName).map(communityOf);
  expect(
    communities.length <= MOST_COMMUNITIES,
    communitiesName,
    communities.length,
    `Only the first ${MOST_COMMUNITIES} communities are sent`,
  );
  const usable = communities.slice(0, MOST_COMMUNITIES).filter((each, index) =>
    expect(
      isCommunity(each),
      `${communitiesName}[${index}]`,
      each,
      "The community is not sent: it has to be as 64512:100, a number of 32 bits, or a name such as " +
        "no-export",
    )
  );
  expect(
    text(listenAddresses) === undefined,
    listenAddresses,
    text(listenAddresses),
    "The addresses are not used: BIRD listens on all; give a peer its localAddress",
  );
  const prepended = text(prependAs);
  const count = number(
    BGP_ANNOTATIONS.prependCount,
    "Nothing is prepended to paths",
    (count) => count <= MOST_PREPENDS,
  );
  const isPrepended = prepended !== undefined && count !== undefined && expect(
    // Another AS would make routers refuse paths as loops of that AS.
    (text(asName) ?? prepended) === prepended,
    prependAs,
    prepended,
    "Nothing is prepended to paths: the AS has to be that of the node",
  );
  const bgp = {
    ...(as !== undefined && { as }),
    ...(reflector !== undefined && { reflector }),
    ...(reflectorClient !== undefined && { reflectorClient }),
    peers,
    communities: usable,
    prepend: isPrepended ? count : 0,
    refused: list(refused).flatMap((each, index) => {
      const cidr = tryParseCidr(each);
      const message = "The range is not refused: it has to be a CIDR block";
      expect(cidr !== undefined, `${refused}[${index}]`, each, message);
      return cidr ?? [];
    }),
  };
  return { bgp, problems: problems.problems };
}

/** Reports a value that is not right. Returns whether it is. */
type Expect = (isRight: boolean, path: string, value: unknown, message: string) => boolean;

function numberOf(text: string): number {
  return /^\d{1,10}$/.test(text) ? Number(text) : NaN;
}

function isAs(value: number): boolean {
  return value > 0 && value < 2 ** 32 - 1 && value !== 23_456 && value !== 65_535;
}

/** The well-known communities that routers act by (RFC 1997, 3765, 7999, 8326), by GoBGP's names. */
const COMMUNITIES: Readonly<Record<string, string>> = {
  "planned-shut": "65535:0",
  blackhole: "65535:666",
  "no-export": "65535:65281",
  "no-advertise": "65535:65282",
  "no-export-subconfed": "65535:65283",
  "no-peer": "65535:65284",
};

/** kube-router also takes the name of a community, or its 32 bits as one number. */
function communityOf(text: string): string {
  const number = numberOf(text);
  return number < 2 ** 32
    ? `${Math.floor(number / 2 ** 16)}:${number % 2 ** 16}`
    : Object.hasOwn(COMMUNITIES, text)
    ? COMMUNITIES[text]!
    : text;
}

function isCommunity(text: string): boolean {
  const numbers = /^(\d{1,5}):(\d{1,5})$/.exec(text)?.slice(1).map(Number) ?? [];
  return numbers.length === 2 && numbers.every((number) => number < 2 ** 16);
}

function peersOfYaml(text: string, expect: Expect): readonly ConfiguredPeer[] {
  let list: unknown;
  try {
    list = text.length <= MOST_CHARACTERS ? parse(text) : undefined;
  } catch {
    // Reported below.
  }
  if (Array.isArray(list) && list.length <= MOST_PEERS) {
    return list.flatMap((peer, index) =>
      peerOf(Object(peer), `${PEER_ANNOTATIONS.yaml}[${index}]`, expect)
    );
  }
  const message = "No peer of the annotation is used: it has to be a YAML list of at most 64 peers";
  // The value is never shown: it may hold passwords.
  expect(false, PEER_ANNOTATIONS.yaml, "(not shown)", message);
  return [];
}

/** The annotations that kube-router has deprecated: one list for each field. */
function peersOfLists(
  list: (name: string) => readonly string[],
  expect: Expect,
): readonly ConfiguredPeer[] {
  const { peerAsNumbers, peerPorts, peerLocalAddresses } = BGP_ANNOTATIONS;
  const { addresses, passwords: names } = PEER_ANNOTATIONS;
  const [asNumbers, ports, locals, passwords] = [
    ...[peerAsNumbers, peerPorts, peerLocalAddresses, names],
  ].map(list);
  return list(addresses).slice(0, MOST_PEERS).flatMap((remoteip, index) =>
    peerOf(
      {
        ...{ remoteip, remoteasn: asNumbers![index] },
        ...{ port: ports![index] || undefined, localip: locals![index] || undefined },
        password: passwords![index],
      },
      `${addresses}[${index}]`,
      expect,
    )
  );
}

function peerOf(
  peer: Readonly<Record<string, unknown>>,
  path: string,
  expect: Expect,
): readonly ConfiguredPeer[] {
  // Through aliases of YAML, a list of a few lines may have billions of values, which nothing may walk
  // through.
  const [remoteip, remoteasn, localip, port = 179, password] = [
    ...[peer.remoteip, peer.remoteasn, peer.localip, peer.port, peer.password],
  ].map((value) => typeof value === "object" && value !== null ? "(a list or an object)" : value);
  const [address, local] = [addressOf(remoteip), addressOf(localip)];
  const as = Number(remoteasn);
  const usedPort = typeof port === "number" || typeof port === "string"
    ? tryParsePort(port)
    : undefined;
  const check = (isRight: boolean, value: unknown, reason: string) =>
    expect(isRight, path, value, `The peer is not used: ${reason}`);
  const isUsable = check(address !== undefined, remoteip, "its address has to be an IP address") &&
    check(isAs(as) && Number.isInteger(as), remoteasn, "its AS number is missing or not valid") &&
    check(usedPort !== undefined, port, "its port has to be a number from 1 to 65535") &&
    check(
      localip === undefined || local !== undefined && ipFamilyOf(local) === ipFamilyOf(address!),
      localip,
      "its local address has to be an IP address of the same family",
    ) &&
    check(
      password === undefined || password === "",
      "(not shown)",
      "a password does not belong in an annotation; add the peer to routing.bgp.peers with a " +
        "passwordFile",
    );
  return isUsable
    ? [{
      ...{ name: peerName(address!), address: address!, port: usedPort!, as },
      ...(local && { localAddress: local }),
      ...SESSION_DEFAULTS,
    }]
    : [];
}

function addressOf(value: unknown): IpAddress | undefined {
  const address = typeof value === "string" ? tryParseIpAddress(value) : undefined;
  return address && isUnspecified(address) ? undefined : address;
}

/** The defaults of a session. */
export const SESSION_DEFAULTS = {
  holdTimeSeconds: 90,
  bfd: false,
  gracefulRestartSeconds: 120,
  prepend: 0,
  nextHopSelf: false,
} as const;
