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
import { EXPRESSIONS } from "./expressions.ts";

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
