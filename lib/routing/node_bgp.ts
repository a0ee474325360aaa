import { parse } from "@std/yaml";
import { BGP_ANNOTATIONS, PEERS_ANNOTATION } from "../api/kinds/routed_node.ts";
import type { ObjectProblem } from "../api/problem.ts";
import { ProblemCollector } from "../api/problem_collector.ts";
import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import {
  addressAt,
  type IpAddress,
  ipFamilyOf,
  isUnspecified,
  tryParseIpAddress,
} from "../net/ip_address.ts";
import { type Port, tryParsePort } from "../net/port.ts";
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
  const reader = new AnnotationReader(name, annotations);
  const as = reader.number(BGP_ANNOTATIONS.as, "The AS number is not used", isAs);
  const reflector = reader.clusterId(BGP_ANNOTATIONS.reflector);
  const reflectorClient = reader.clusterId(BGP_ANNOTATIONS.reflectorClient);
  const bgp = {
    ...(as !== undefined && { as }),
    ...(reflector !== undefined && { reflector }),
    ...(reflectorClient !== undefined && { reflectorClient }),
    peers: annotations[PEERS_ANNOTATION] === undefined
      ? peersOfLists(reader)
      : peersOfYaml(annotations[PEERS_ANNOTATION], reader),
    communities: communitiesOf(reader),
    prepend: prependOf(reader),
    refused: reader.list(BGP_ANNOTATIONS.refused).flatMap((text, index) => {
      const cidr = tryParseCidr(text);
      reader.expect(cidr !== undefined, `${BGP_ANNOTATIONS.refused}[${index}]`, {
        value: text,
        message: "The range is not refused: it has to be a CIDR block",
      });
      return cidr ?? [];
    }),
  };
  return { bgp, problems: reader.problems };
}

/** Reads annotations and collects what is wrong with them. */
class AnnotationReader {
  readonly #annotations: Readonly<Record<string, string>>;
  readonly #problems: ProblemCollector;

  constructor(node: string, annotations: Readonly<Record<string, string>>) {
    this.#annotations = annotations;
    this.#problems = new ProblemCollector("Node", node);
  }

  get problems(): readonly ObjectProblem[] {
    return this.#problems.problems;
  }

  text(name: string): string | undefined {
    return this.#annotations[name]?.trim() || undefined;
  }

  list(name: string): readonly string[] {
    return this.text(name)?.split(",").map((text) => text.trim()) ?? [];
  }

  expect(
    isRight: boolean,
    path: string,
    { value, message }: { readonly value: unknown; readonly message: string },
  ): boolean {
    if (!isRight) this.#problems.report(`metadata.annotations["${path}"]`, value, message);
    return isRight;
  }

  number(
    name: string,
    consequence: string,
    isValid: (value: number) => boolean,
  ): number | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const number = /^\d{1,10}$/.test(value) ? Number(value) : NaN;
    const message = `${consequence}: the number is not valid`;
    return this.expect(isValid(number), name, { value, message }) ? number : undefined;
  }

  /** A number, or an IPv4 address. */
  clusterId(name: string): string | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const number = /^\d{1,10}$/.test(value) ? Number(value) : 0;
    const isNumber = number > 0 && number < 2 ** 32;
    const text = isNumber ? addressAt(BigInt(number), "IPv4") : tryParseIpAddress(value);
    const isValid = text !== undefined && ipFamilyOf(text) === "IPv4" && !isUnspecified(text);
    const message = "The node is neither reflector nor client: the ID has to be a number from 1 " +
      "to 4294967295 or an IPv4 address";
    return this.expect(isValid, name, { value, message }) ? text : undefined;
  }
}

function isAs(value: number): boolean {
  return value > 0 && value < 2 ** 32 - 1 && value !== 23_456 && value !== 65_535;
}

function isCommunity(text: string): boolean {
  const numbers = /^(\d{1,5}):(\d{1,5})$/.exec(text)?.slice(1).map(Number) ?? [];
  return numbers.length === 2 && numbers.every((number) => number < 2 ** 16);
}

function communitiesOf(reader: AnnotationReader): readonly string[] {
  const name = BGP_ANNOTATIONS.communities;
  const texts = reader.list(name);
  reader.expect(texts.length <= MOST_COMMUNITIES, name, {
    value: texts.length,
    message: `Only the first ${MOST_COMMUNITIES} communities are sent`,
  });
  return texts.slice(0, MOST_COMMUNITIES).filter((text, index) =>
    reader.expect(isCommunity(text), `${name}[${index}]`, {
      value: text,
      message: "The community is not sent: it has to be as 64512:100",
    })
  );
}

/** Only the own AS is prepended: another one would make routers refuse paths as loops of that AS. */
function prependOf(reader: AnnotationReader): number {
  const value = reader.text(BGP_ANNOTATIONS.prependAs);
  const count = reader.number(
    BGP_ANNOTATIONS.prependCount,
    "Nothing is prepended to paths",
    (number) => number <= MOST_PREPENDS,
  );
  if (value === undefined || count === undefined) return 0;
  const own = reader.text(BGP_ANNOTATIONS.as);
  const message = "Nothing is prepended to paths: the AS has to be that of the node";
  const isOwn = own === undefined || own === value;
  return reader.expect(isOwn, BGP_ANNOTATIONS.prependAs, { value, message }) ? count : 0;
}

interface WrittenPeer {
  readonly remoteip?: unknown;
  readonly remoteasn?: unknown;
  readonly localip?: unknown;
  readonly port?: unknown;
  readonly password?: unknown;
}

function peersOfYaml(text: string, reader: AnnotationReader): readonly ConfiguredPeer[] {
  const message = "No peer of the annotation is used: it has to be a YAML list of at most 64 peers";
  // The value is never shown: it may hold passwords.
  const wrong = (isRight: boolean) =>
    reader.expect(isRight, PEERS_ANNOTATION, { value: "(not shown)", message });
  if (!wrong(text.length <= MOST_CHARACTERS)) return [];
  let list: unknown;
  try {
    list = parse(text);
  } catch {
    wrong(false);
    return [];
  }
  if (!Array.isArray(list) || list.length > MOST_PEERS) {
    wrong(false);
    return [];
  }
  return list.flatMap((peer, index) =>
    peerOf(scalarsOf(Object(peer)), { path: `${PEERS_ANNOTATION}[${index}]`, reader })
  );
}

/**
 * Replaces lists and objects by a text. Through aliases of YAML, a list of a few lines may have billions
 * of values, which nothing may walk through.
 */
function scalarsOf(
  { remoteip, remoteasn, localip, port, password }: WrittenPeer,
): WrittenPeer {
  const scalar = (value: unknown) =>
    typeof value === "object" && value !== null ? "(a list or an object)" : value;
  return {
    remoteip: scalar(remoteip),
    remoteasn: scalar(remoteasn),
    localip: scalar(localip),
    port: scalar(port),
    password: scalar(password),
  };
}

/** The annotations that kube-router has deprecated: one list for each field. */
function peersOfLists(reader: AnnotationReader): readonly ConfiguredPeer[] {
  const addresses = reader.list(BGP_ANNOTATIONS.peerAddresses).slice(0, MOST_PEERS);
  const [asNumbers, ports, locals] = [
    reader.list(BGP_ANNOTATIONS.peerAsNumbers),
    reader.list(BGP_ANNOTATIONS.peerPorts),
    reader.list(BGP_ANNOTATIONS.peerLocalAddresses),
  ];
  return addresses.flatMap((remoteip, index) => {
    const path = `${BGP_ANNOTATIONS.peerAddresses}[${index}]`;
    const peer = { remoteip, remoteasn: asNumbers[index], port: ports[index] || undefined };
    return peerOf({ ...peer, localip: locals[index] || undefined }, { path, reader });
  });
}

function peerOf(
  { remoteip, remoteasn, localip, port: givenPort = 179, password }: WrittenPeer,
  { path, reader }: { readonly path: string; readonly reader: AnnotationReader },
): readonly ConfiguredPeer[] {
  const address = addressOf(remoteip);
  const as = Number(remoteasn);
  const port = typeof givenPort === "number" || typeof givenPort === "string"
    ? tryParsePort(givenPort)
    : undefined;
  const local = localip === undefined ? undefined : addressOf(localip);
  const check = (isRight: boolean, value: unknown, reason: string) =>
    reader.expect(isRight, path, { value, message: `The peer is not used: ${reason}` });
  const isUsable = check(address !== undefined, remoteip, "its address has to be an IP address") &&
    check(isAs(as) && Number.isInteger(as), remoteasn, "its AS number is missing or not valid") &&
    check(port !== undefined, givenPort, "its port has to be a number from 1 to 65535") &&
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
  return isUsable ? [withDefaults({ address: address!, as, port: port!, local })] : [];
}

function addressOf(value: unknown): IpAddress | undefined {
  const address = typeof value === "string" ? tryParseIpAddress(value) : undefined;
  return address && isUnspecified(address) ? undefined : address;
}

function withDefaults(
  { address, as, port, local }: {
    readonly address: IpAddress;
    readonly as: number;
    readonly port: Port;
    readonly local: IpAddress | undefined;
  },
): ConfiguredPeer {
  return {
    name: peerName(address),
    address,
    port,
    as,
    ...(local && { localAddress: local }),
    ...SESSION_DEFAULTS,
  };
}

/** The defaults of a session. */
export const SESSION_DEFAULTS = {
  holdTimeSeconds: 90,
  bfd: false,
  gracefulRestartSeconds: 120,
  prepend: 0,
  nextHopSelf: false,
} as const;

/** Returns the name of a session with an address. */
export function peerName(address: IpAddress): string {
  return `peer_${address.replaceAll(/[^0-9a-f]/g, "_")}`;
}
