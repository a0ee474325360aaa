/**
 * The addresses that tests use. The number shows the role. One plan for all tests,
 * after the one in upstream's packet-flow tests.
 *
 * | | IPv4 | IPv6 |
 * | --- | --- | --- |
 * | pods of the cluster | 10.0.0.0/8 | fd00:10::/64 |
 * | … on this node | 10.180.0.0/24 | fd00:10::a00/120 |
 * | … on the other node | 10.180.1.0/24 | fd00:10::b00/120 |
 * | Services | 172.30.0.0/16 | fd00:172:30::/112 |
 * | this node | 192.168.0.2 (second address 192.168.1.2) | 2001:db8::2 |
 * | external IPs | 192.168.99.0/24 | 2001:db8:99::/64 |
 * | load balancers | 1.2.3.4 | 2001:db8:1::4 |
 * | clients | 203.0.113.0/24 | 2001:db8:113::/64 |
 */
import { type Cidr, parseCidr } from "../../../lib/net/cidr.ts";
import { type IpAddress, type IpFamily, parseIpAddress } from "../../../lib/net/ip_address.ts";

/** The addresses of one IP family. */
export interface FamilyAddresses {
  readonly podCidr: Cidr;
  readonly serviceCidr: Cidr;
  /** Two pods of this node and two of the other; endpoints of Services. */
  readonly localPods: readonly [IpAddress, IpAddress];
  readonly remotePods: readonly [IpAddress, IpAddress];
  /** Pods that are no endpoint of anything. */
  readonly localPodClient: IpAddress;
  readonly remotePodClient: IpAddress;
  readonly clusterIp: IpAddress;
  readonly node: IpAddress;
  /** A second address of this node. */
  readonly nodeSecond: IpAddress;
  readonly loopback: IpAddress;
  readonly externalIp: IpAddress;
  readonly loadBalancerIp: IpAddress;
  readonly client: IpAddress;
  /** A client outside of {@linkcode FamilyAddresses.clientRange}. */
  readonly blockedClient: IpAddress;
  /** The lower half of the clients. */
  readonly clientRange: Cidr;
}

/** Names of the two nodes, and the zones they are in. */
export const THIS_NODE = "node-a";
export const OTHER_NODE = "node-b";
export const THIS_ZONE = "zone-a";

/** The plan. */
export const ADDRESSES: Readonly<Record<IpFamily, FamilyAddresses>> = {
  IPv4: {
    podCidr: parseCidr("10.0.0.0/8"),
    serviceCidr: parseCidr("172.30.0.0/16"),
    localPods: [parseIpAddress("10.180.0.1"), parseIpAddress("10.180.0.2")],
    remotePods: [parseIpAddress("10.180.1.1"), parseIpAddress("10.180.1.2")],
    localPodClient: parseIpAddress("10.180.0.99"),
    remotePodClient: parseIpAddress("10.180.1.99"),
    clusterIp: parseIpAddress("172.30.0.41"),
    node: parseIpAddress("192.168.0.2"),
    nodeSecond: parseIpAddress("192.168.1.2"),
    loopback: parseIpAddress("127.0.0.1"),
    externalIp: parseIpAddress("192.168.99.11"),
    loadBalancerIp: parseIpAddress("1.2.3.4"),
    client: parseIpAddress("203.0.113.2"),
    blockedClient: parseIpAddress("203.0.113.130"),
    clientRange: parseCidr("203.0.113.0/25"),
  },
  IPv6: {
    podCidr: parseCidr("fd00:10::/64"),
    serviceCidr: parseCidr("fd00:172:30::/112"),
    localPods: [parseIpAddress("fd00:10::a01"), parseIpAddress("fd00:10::a02")],
    remotePods: [parseIpAddress("fd00:10::b01"), parseIpAddress("fd00:10::b02")],
    localPodClient: parseIpAddress("fd00:10::a99"),
    remotePodClient: parseIpAddress("fd00:10::b99"),
    clusterIp: parseIpAddress("fd00:172:30::41"),
    node: parseIpAddress("2001:db8::2"),
    nodeSecond: parseIpAddress("2001:db8:2::2"),
    loopback: parseIpAddress("::1"),
    externalIp: parseIpAddress("2001:db8:99::11"),
    loadBalancerIp: parseIpAddress("2001:db8:1::4"),
    client: parseIpAddress("2001:db8:113::2"),
    blockedClient: parseIpAddress("2001:db8:113::82"),
    clientRange: parseCidr("2001:db8:113::/121"),
  },
};
