import type { Node } from "../api/kinds/node.ts";
import { type Cidr, tryParseCidr } from "../net/cidr.ts";
import { type IpAddress, tryParseIpAddress } from "../net/ip_address.ts";

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
