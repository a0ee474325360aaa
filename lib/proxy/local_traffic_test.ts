import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { assertEquals, assertThrows } from "@std/assert";
import {
  isFromPod,
  type LocalTrafficDetector,
  localTrafficDetector,
  type LocalTrafficOptions,
} from "./local_traffic.ts";

const CIDRS = ["10.0.0.0/8", "fd00::/64", "11.0.0.0/8"].map(parseCidr);
const byCidr = (text: string): LocalTrafficDetector => ({ kind: "byCidr", cidr: parseCidr(text) });
const NONE: LocalTrafficDetector = { kind: "none" };

/** control-plane 2.6. */
const ROWS: readonly {
  readonly name: string;
  readonly options: LocalTrafficOptions;
  readonly IPv4: LocalTrafficDetector;
  readonly IPv6: LocalTrafficDetector;
}[] = [
  {
    name: "uses the first cluster CIDR of each family",
    options: { mode: "ClusterCIDR", clusterCidrs: CIDRS },
    IPv4: byCidr("10.0.0.0/8"),
    IPv6: byCidr("fd00::/64"),
  },
  {
    name: "knows nothing for a family without a cluster CIDR",
    options: { mode: "ClusterCIDR", clusterCidrs: CIDRS.slice(0, 1) },
    IPv4: byCidr("10.0.0.0/8"),
    IPv6: NONE,
  },
  {
    name: "knows nothing without cluster CIDRs, whatever the node's pod CIDRs are",
    options: { mode: "ClusterCIDR", podCidrs: CIDRS },
    IPv4: NONE,
    IPv6: NONE,
  },
  {
    name: "uses the node's first pod CIDR of each family",
    options: { mode: "NodeCIDR", podCidrs: CIDRS, clusterCidrs: [] },
    IPv4: byCidr("10.0.0.0/8"),
    IPv6: byCidr("fd00::/64"),
  },
  {
    name: "knows nothing without pod CIDRs",
    options: { mode: "NodeCIDR", clusterCidrs: CIDRS },
    IPv4: NONE,
    IPv6: NONE,
  },
  {
    name: "knows nothing by a range that contains every address",
    options: { mode: "ClusterCIDR", clusterCidrs: ["0.0.0.0/0", "::/0"].map(parseCidr) },
    IPv4: NONE,
    IPv6: NONE,
  },
  {
    name: "uses the bridge for both families",
    options: { mode: "BridgeInterface", bridgeInterface: "cni0" },
    IPv4: { kind: "byBridge", interfaceName: "cni0" },
    IPv6: { kind: "byBridge", interfaceName: "cni0" },
  },
  {
    name: "uses the interface prefix for both families",
    options: { mode: "InterfaceNamePrefix", interfaceNamePrefix: "veth" },
    IPv4: { kind: "byInterfacePrefix", prefix: "veth" },
    IPv6: { kind: "byInterfacePrefix", prefix: "veth" },
  },
];

for (const { name, options, IPv4, IPv6 } of ROWS) {
  Deno.test(`localTrafficDetector() ${name}`, () => {
    assertEquals(localTrafficDetector(options, "IPv4"), IPv4);
    assertEquals(localTrafficDetector(options, "IPv6"), IPv6);
  });
}

for (
  const [mode, field] of [
    ["BridgeInterface", "bridgeInterface"],
    ["InterfaceNamePrefix", "interfaceNamePrefix"],
  ] as const
) {
  Deno.test(`localTrafficDetector() refuses ${mode} without ${field}`, () => {
    assertThrows(() => localTrafficDetector({ mode }, "IPv4"), RangeError, field);
    assertThrows(() => localTrafficDetector({ mode, [field]: "" }, "IPv4"), RangeError, mode);
  });
}

const SENDER = { address: parseIpAddress("10.1.2.3") };

for (
  const [name, detector, interfaceName, expected] of [
    ["inside of the range", { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") }, undefined, true],
    ["outside of it", { kind: "byCidr", cidr: parseCidr("10.9.0.0/16") }, undefined, false],
    ["by the bridge", { kind: "byBridge", interfaceName: "cni0" }, "cni0", true],
    ["by another one", { kind: "byBridge", interfaceName: "cni0" }, "cni01", false],
    ["by an unknown rule", { kind: "byBridge", interfaceName: "cni0" }, undefined, undefined],
    ["by a prefix", { kind: "byInterfacePrefix", prefix: "veth" }, "veth12", true],
    ["by another prefix", { kind: "byInterfacePrefix", prefix: "veth" }, "eth0", false],
    ["without a detector", { kind: "none" }, "cni0", undefined],
  ] as const
) {
  Deno.test(`isFromPod() of a packet ${name} is ${expected}`, () => {
    const sender = interfaceName === undefined ? SENDER : { ...SENDER, interfaceName };
    assertEquals(isFromPod(detector, sender), expected);
  });
}
