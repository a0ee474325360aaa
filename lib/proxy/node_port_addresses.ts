/**
 * Which addresses of the node accept node ports.
 *
 * @module
 */
import {
  type Cidr,
  cidrContains,
  cidrFamilyOf,
  hostCidr,
  parseCidr,
  prefixLengthOf,
} from "../net/cidr.ts";
import { type IpAddress, type IpFamily, ipFamilyOf, isLoopback } from "../net/ip_address.ts";
import type { NodeState } from "./node_state.ts";

/** Node ports on every address of the node, or only on those inside one of the ranges. */
export type NodePortAddresses =
  | { readonly kind: "all" }
  | { readonly kind: "cidrs"; readonly cidrs: readonly Cidr[] };

/** Entry of `nodePortAddresses` that stands for the node's own addresses. */
const PRIMARY = "primary";

/**
 * Reads the setting `nodePortAddresses` for one IP family: CIDRs, or the word `primary`, which is
 * the first address of the Node. A family without an entry matches everything, and so does a /0;
 * both as in upstream. Unlike there, `primary` on a node without an address of the family matches
 * nothing: who asked for one address never meant all of them.
 *
 * Throws a SyntaxError that quotes an entry which is neither.
 */
export function nodePortAddressesFor(
  family: IpFamily,
  entries: readonly string[],
  node: Pick<NodeState, "addresses">,
): NodePortAddresses {
  if (entries.includes(PRIMARY)) {
    const primary = node.addresses.find((address) =>
      ipFamilyOf(address) === family && !isLoopback(address)
    );
    return { kind: "cidrs", cidrs: primary === undefined ? [] : [hostCidr(primary)] };
  }
  const cidrs = entries.map(parseCidr).filter((cidr) => cidrFamilyOf(cidr) === family);
  const matchesAll = cidrs.length === 0 || cidrs.some((cidr) => prefixLengthOf(cidr) === 0);
  return matchesAll ? { kind: "all" } : { kind: "cidrs", cidrs };
}

/** The addresses on which node ports are served, sorted as text, each once. */
export function selectNodePortAddresses(
  nodePortAddresses: NodePortAddresses,
  interfaceAddresses: readonly IpAddress[],
): readonly IpAddress[] {
  const selected = interfaceAddresses.filter((address) =>
    nodePortAddresses.kind === "all" ||
    nodePortAddresses.cidrs.some((cidr) => cidrContains(cidr, address))
  );
  return [...new Set(selected)].sort();
}
