import { type IpAddress, type IpFamily, ipFamilyOf, isUnspecified } from "../net/ip_address.ts";

/** Source of an address: one of these, or none, which means loopback. */
type NodeAddressOrigin = "Node" | "bindAddress" | "default route" | "none";

/** The node's address in one family. */
interface NodeAddress {
  readonly address: IpAddress;
  readonly origin: NodeAddressOrigin;
}

/** The node's addresses, and the family that a single-stack host uses. */
export interface NodeAddresses {
  readonly primary: IpFamily;
  readonly IPv4: NodeAddress;
  readonly IPv6: NodeAddress;
}

const LOOPBACK: Readonly<Record<IpFamily, NodeAddress>> = {
  IPv4: { address: "127.0.0.1" as IpAddress, origin: "none" },
  IPv6: { address: "::1" as IpAddress, origin: "none" },
};

/**
 * Chooses from the Node's addresses (InternalIPs, then ExternalIPs) and `bindAddress`, which
 * overrides the Node in its family unless it is unspecified. The first address decides which family
 * is primary: a cluster that is IPv6 first lists IPv6 first. Without a Node, `ofRoutes` has the
 * addresses by which the default routes send.
 */
export function nodeAddressesOf(
  ofNode: readonly IpAddress[],
  bindAddress: IpAddress,
  ofRoutes: readonly IpAddress[] = [],
): NodeAddresses {
  const pick = (family: IpFamily): NodeAddress => {
    if (!isUnspecified(bindAddress) && ipFamilyOf(bindAddress) === family) {
      return { address: bindAddress, origin: "bindAddress" };
    }
    const find = (addresses: readonly IpAddress[]) =>
      addresses.find((candidate) => ipFamilyOf(candidate) === family);
    const [address, ofRoute] = [find(ofNode), find(ofRoutes)];
    if (address !== undefined) return { address, origin: "Node" };
    return ofRoute === undefined ? LOOPBACK[family] : { address: ofRoute, origin: "default route" };
  };
  const first = isUnspecified(bindAddress) ? ofNode[0] ?? ofRoutes[0] : bindAddress;
  return {
    primary: first === undefined ? "IPv4" : ipFamilyOf(first),
    IPv4: pick("IPv4"),
    IPv6: pick("IPv6"),
  };
}
