/**
 * The sets and maps of the table. Pure.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { EXPRESSIONS, NUMBER, PORT } from "./expressions.ts";

/** A set, whose elements are keys, or a map, whose elements have a value too. */
export interface Container {
  readonly kind: "map" | "set";
  /** What nft is told of it. */
  readonly declaration: string;
}

/** The names of all sets and maps, in the order in which they are written. */
export const CONTAINER_NAMES = [
  "service-ips",
  "node-ports",
  "admitted",
  "source-ranges",
  "endpoints-tcp",
  "endpoints-udp",
  "endpoints-sctp",
  "node-port-endpoints-tcp",
  "node-port-endpoints-udp",
  "node-port-endpoints-sctp",
  "choices",
  "node-port-choices",
  "slots",
  "node-port-slots",
  "affinity",
  "hairpin",
  "cluster-ips",
  "service-cidrs",
  "node-port-ips",
] as const;

/** One of {@linkcode CONTAINER_NAMES}. */
export type ContainerName = typeof CONTAINER_NAMES[number];

/** One member of a set or map, in the words of nft. */
export interface Element {
  readonly container: ContainerName;
  readonly key: string;
  /** In maps. */
  readonly value?: string;
}

/** Clients that are remembered at once; an element takes about 100 bytes, when it is there. */
const MAX_CLIENTS = 1_048_576;

/** Every set and map of one family's table. */
export function containersOf(family: IpFamily): Readonly<Record<ContainerName, Container>> {
  const { address, destination, clientType } = EXPRESSIONS[family];
  const vip = `${destination} . ${PORT}`;
  // `typeof` knows no port of any protocol: rules of later transactions are refused ("conflicting
  // protocols") or, worse, silently match the one protocol that the data is said to be of. Without a
  // number in the key there is no need for `typeof`.
  const endpointOf = (protocol: string) => `${destination} . ${protocol} dport`;
  const numbered = (front: string) => (protocol: string) =>
    map(`typeof ${front} . ${NUMBER} : ${endpointOf(protocol)}`);
  const [vipEndpoints, portEndpoints] = [numbered(vip), numbered(PORT)];
  const endpoint = `${address} . inet_service`;
  const front = `${address} . inet_proto . inet_service`;
  return {
    "service-ips": map(`type ${front} : verdict`),
    "node-ports": map("type inet_proto . inet_service : verdict"),
    "admitted": map(`type ${front} : verdict`),
    "source-ranges": set(`type ${front} . ${address} ; flags interval`),
    "endpoints-tcp": vipEndpoints("tcp"),
    "endpoints-udp": vipEndpoints("udp"),
    "endpoints-sctp": vipEndpoints("sctp"),
    "node-port-endpoints-tcp": portEndpoints("tcp"),
    "node-port-endpoints-udp": portEndpoints("udp"),
    "node-port-endpoints-sctp": portEndpoints("sctp"),
    "choices": map(`typeof ${vip} . ${NUMBER} : meta priority`),
    "node-port-choices": map(`typeof ${PORT} . ${NUMBER} : meta priority`),
    "slots": map(`type ${front} . classid : ${endpoint}`),
    "node-port-slots": map(`type inet_proto . inet_service . classid : ${endpoint}`),
    "affinity": map(
      `typeof ${clientType} : meta priority ; flags dynamic,timeout ; size ${MAX_CLIENTS}`,
    ),
    "hairpin": set(`type ${address} . ${address}`),
    "cluster-ips": set(`type ${address}`),
    "service-cidrs": set(`type ${address} ; flags interval`),
    "node-port-ips": set(`type ${address}`),
  };
}

/** Whether this is the name of one of our sets and maps. */
export function isContainerName(name: string): name is ContainerName {
  return CONTAINER_NAMES.some((known) => known === name);
}

/** Filled by the packet path: what is in it is none of ours to compare. */
export const DYNAMIC_CONTAINER: ContainerName = "affinity";

function map(declaration: string): Container {
  return { kind: "map", declaration };
}

function set(declaration: string): Container {
  return { kind: "set", declaration };
}
