import type { Node } from "../api/kinds/node.ts";
import {
  type Cidr,
  cidrContains,
  cidrFamilyOf,
  hostCidr,
  parseCidr,
  prefixLengthOf,
  tryParseCidr,
} from "../net/cidr.ts";
import {
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  isLoopback,
  parseIpAddress,
  tryParseIpAddress,
} from "../net/ip_address.ts";

/** The own node. */
export interface NodeState {
  readonly name: string;
  /** InternalIPs, then ExternalIPs, in the order of the Node object. */
  readonly addresses: readonly IpAddress[];
  /** Label `topology.kubernetes.io/zone`. */
  readonly zone?: string;
  readonly podCidrs: readonly Cidr[];
}

const ZONE_LABEL = "topology.kubernetes.io/zone";
/** The address types that are used, in order of preference; host names are not. */
const ADDRESS_TYPES = ["InternalIP", "ExternalIP"];

/**
 * Reads the own Node; without one only the name is known. Skips an address or range that cannot be
 * parsed: the kubelet writes them, and no reader of the log could correct it.
 */
export function nodeStateFromNode(node: Node | undefined, name: string): NodeState {
  const addresses = node?.status.addresses ?? [];
  const podCidrs = node?.spec.podCIDRs ?? (node?.spec.podCIDR ? [node.spec.podCIDR] : []);
  const zone = node?.metadata.labels?.[ZONE_LABEL] ?? "";
  return {
    name,
    addresses: ADDRESS_TYPES.flatMap((type) =>
      addresses.filter((address) => address.type === type)
        .flatMap(({ address }) => tryParseIpAddress(address) ?? [])
    ),
    ...(zone !== "" && { zone }),
    podCidrs: podCidrs.flatMap((text) => tryParseCidr(text) ?? []),
  };
}

/** Node ports on every address of the node, or only on addresses inside the ranges. */
export type NodePortAddresses =
  | { readonly kind: "all" }
  | { readonly kind: "cidrs"; readonly cidrs: readonly Cidr[] };

/**
 * Reads the setting `nodePortAddresses` for one IP family: CIDRs and, mixed with them, the keywords
 * of KEP-6032. `primary` is the first address of the Node, `localhost` the loopback range, `all` a
 * /0. A family without an entry matches everything, and so does a /0, both as in upstream. Unlike
 * upstream, `primary` on a node without an address of the family matches nothing: a user who asks
 * for one address never means all of them.
 *
 * Throws a SyntaxError that quotes an entry that is neither.
 */
export function nodePortAddressesFor(
  family: IpFamily,
  entries: readonly string[],
  node: Pick<NodeState, "addresses">,
): NodePortAddresses {
  const ranges = entries.map((entry) => rangesOf(entry, family, node));
  const ofFamily = ranges.filter((range) => range !== undefined);
  const cidrs = [...new Set(ofFamily.flat())];
  const matchesAll = ofFamily.length === 0 || cidrs.some((cidr) => prefixLengthOf(cidr) === 0);
  return matchesAll ? { kind: "all" } : { kind: "cidrs", cidrs };
}

/** Whether a range of the setting contains 127.0.0.1. */
export function namesLoopback(nodePortAddresses: NodePortAddresses): boolean {
  return nodePortAddresses.kind === "cidrs" &&
    nodePortAddresses.cidrs.some((cidr) => cidrContains(cidr, LOOPBACK));
}

const LOOPBACK = parseIpAddress("127.0.0.1");
const LOCALHOST: Readonly<Record<IpFamily, Cidr>> = {
  IPv4: parseCidr("127.0.0.0/8"),
  IPv6: parseCidr("::1/128"),
};

const EVERYTHING: Readonly<Record<IpFamily, Cidr>> = {
  IPv4: parseCidr("0.0.0.0/0"),
  IPv6: parseCidr("::/0"),
};

/** The ranges of an entry in a family; `undefined` = it is a range of the other family. */
function rangesOf(
  entry: string,
  family: IpFamily,
  { addresses }: Pick<NodeState, "addresses">,
): readonly Cidr[] | undefined {
  switch (entry) {
    case "primary": {
      const own = addresses.find((address) => ipFamilyOf(address) === family);
      return own === undefined || isLoopback(own) ? [] : [hostCidr(own)];
    }
    case "localhost":
      return [LOCALHOST[family]];
    case "all":
      return [EVERYTHING[family]];
    default: {
      const cidr = parseCidr(entry);
      return cidrFamilyOf(cidr) === family ? [cidr] : undefined;
    }
  }
}

/** The addresses on which node ports are served, sorted as text, without duplicates. */
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
