/**
 * The sets and maps of the table. Pure.
 *
 * Numbers in them are of type `classid`, that of a packet's priority, which carries them from one
 * look-up to the next. All types have names: with `typeof`, nft 1.0.6 adds the match of a protocol to
 * rules that name a map whose data is a port of it, when the map was made by an earlier transaction.
 *
 * @module
 */
import type { IpFamily } from "../../lib/net/ip_address.ts";
import { EXPRESSIONS } from "./expressions.ts";

/** A set, whose elements are keys, or a map, whose elements have a value too. */
export interface Container {
  readonly kind: "map" | "set";
  /** What nft is told of it. */
  readonly declaration: string;
}

/** The names of all sets and maps, in the order in which they are written. */
export const CONTAINER_NAMES = [
  "numbered-chains",
  "service-ips",
  "node-ports",
  "admitted",
  "source-ranges",
  "endpoints",
  "node-port-endpoints",
  "choices",
  "node-port-choices",
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
  const { address, clientType } = EXPRESSIONS[family];
  const port = "inet_proto . inet_service";
  const vip = `${address} . ${port}`;
  const endpoint = `${address} . inet_service`;
  return {
    "numbered-chains": map("type classid : verdict"),
    "service-ips": map(`type ${vip} : classid`),
    "node-ports": map(`type ${port} : classid`),
    "admitted": map(`type ${vip} : verdict`),
    "source-ranges": set(`type ${vip} . ${address} ; flags interval`),
    "endpoints": map(`type ${vip} . classid : ${endpoint}`),
    "node-port-endpoints": map(`type ${port} . classid : ${endpoint}`),
    "choices": map(`type ${vip} . classid : classid`),
    "node-port-choices": map(`type ${port} . classid : classid`),
    "affinity": map(
      `typeof ${clientType} : meta priority ; flags dynamic,timeout ; size ${MAX_CLIENTS}`,
    ),
    "hairpin": set(`type ${address} . ${address}`),
    "cluster-ips": set(`type ${address}`),
    "service-cidrs": set(`type ${address} ; flags interval`),
    "node-port-ips": set(`type ${address}`),
  };
}

/** The protocols that Services have, by number. */
export const PROTOCOL_NAMES: Readonly<Record<string, string>> = {
  6: "tcp",
  17: "udp",
  132: "sctp",
};

/** As nft prints a declaration, a part in each line. */
export function declarationPrint({ kind, declaration }: Container): string {
  return `${kind}\n${declaration.replaceAll(" ; ", "\n")}\n`;
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
