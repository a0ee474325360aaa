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
import type { NftContainer, NftTableSpec } from "../netfilter/nft/nft_objects.ts";
import { BLOCK_MASK, slotText } from "./slots.ts";

/** The name of the table; the only one of Services that this mode writes. */
export const TABLE = "kube-relay";

/** The maximum number of remembered clients. An element takes about 100 bytes once it exists. */
const MAX_CLIENTS = 1_048_576;

/** The table of one family. Its sets and maps are in the order in which they are written. */
export function servicesTable(family: IpFamily): NftTableSpec {
  const { address, clientType, table } = EXPRESSIONS[family];
  const port = "inet_proto . inet_service";
  const vip = `${address} . ${port}`;
  const endpoint = `${address} . inet_service`;
  const containers = new Map<string, NftContainer>([
    ["numbered-chains", map("type classid : verdict")],
    ["service-ips", map(`type ${vip} : classid`)],
    ["node-ports", map(`type ${port} : classid`)],
    ["admitted", map(`type ${vip} : verdict`)],
    ["source-ranges", set(`type ${vip} . ${address} ; flags interval`)],
    ["endpoints", map(`type ${vip} . classid : ${endpoint}`)],
    ["node-port-endpoints", map(`type ${port} . classid : ${endpoint}`)],
    ["choices", map(`type ${vip} . classid : classid`)],
    ["node-port-choices", map(`type ${port} . classid : classid`)],
    [
      "affinity",
      map(`typeof ${clientType} : meta priority ; flags dynamic,timeout ; size ${MAX_CLIENTS}`),
    ],
    ["hairpin", set(`type ${address} . ${address}`)],
    ["cluster-ips", set(`type ${address}`)],
    ["service-cidrs", set(`type ${address} ; flags interval`)],
    ["node-port-ips", set(`type ${address}`)],
  ]);
  return { family: table, name: TABLE, containers };
}

function map(declaration: string): NftContainer {
  return { kind: "map", declaration };
}

function set(declaration: string): NftContainer {
  return { kind: "set", declaration };
}

/** Expressions of one IP family. */
interface FamilyExpressions {
  /** The family of the table. */
  readonly table: "ip" | "ip6";
  /** The type of an address. */
  readonly address: "ipv4_addr" | "ipv6_addr";
  readonly source: string;
  readonly destination: string;
  /** Every address that never leaves a machine. */
  readonly loopback: string;
  /** Identifies a client of a ServicePort, once the priority holds a slot of it. */
  readonly client: string;
  /** The type of {@linkcode FamilyExpressions.client}. */
  readonly clientType: string;
}

/** Protocol and port that a packet is for. */
export const PORT = "meta l4proto . th dport";

/**
 * A 32-bit whole number as a type. A named type for that is missing in nft; `typeof` takes the one
 * of any expression that has it.
 */
const NUMBER = "numgen random mod 65536";

/**
 * Identifies the ServicePort of a client: the common bits of all its slots. It comes first in keys,
 * since nft 1.0.6 accepts a mask elsewhere only in parentheses, and prints none.
 */
const BLOCK = `meta priority and ${slotText(BLOCK_MASK)}`;

/**
 * nft 1.0.6 reserves at most 16 bytes of registers for the key of an `update` and fails on an
 * assertion beyond; an IPv6 address and a slot are 20. So a client is identified by 64 bits of
 * hash. Two clients with the same hash would share an endpoint, nothing worse.
 */
function hashed(seed: string): string {
  return `jhash ip6 saddr mod 4294967295 seed ${seed}`;
}

/** By IP family. */
export const EXPRESSIONS: Readonly<Record<IpFamily, FamilyExpressions>> = {
  IPv4: {
    table: "ip",
    address: "ipv4_addr",
    source: "ip saddr",
    destination: "ip daddr",
    loopback: "127.0.0.0/8",
    client: `${BLOCK} . ip saddr`,
    clientType: "meta priority . ip saddr",
  },
  IPv6: {
    table: "ip6",
    address: "ipv6_addr",
    source: "ip6 saddr",
    destination: "ip6 daddr",
    loopback: "::1",
    client: `${BLOCK} . ${hashed("0x6b756265")} . ${hashed("0x72656c61")}`,
    // Named by `typeof jhash`, the map could not be listed: nft 1.0.6 ends on a segmentation fault.
    clientType: `meta priority . ${NUMBER} . ${NUMBER}`,
  },
};
