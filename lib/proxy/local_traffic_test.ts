import { parseCidr } from "../net/cidr.ts";
import { type IpFamily, parseIpAddress } from "../net/ip_address.ts";
import { assertEquals, assertThrows } from "@std/assert";
import { textRows } from "../../tests/support/texts/text_rows.ts";
import { isFromPod, localTrafficDetector, type LocalTrafficOptions } from "./local_traffic.ts";

/** The detectors of control-plane 2.6 by mode and options: of IPv4, of IPv6. */
const ROWS = `
uses the first cluster CIDR of each family
  ClusterCIDR clusterCidrs=10.0.0.0/8,fd00::/64,11.0.0.0/8
  byCidr 10.0.0.0/8; byCidr fd00::/64
knows nothing for a family without a cluster CIDR
  ClusterCIDR clusterCidrs=10.0.0.0/8
  byCidr 10.0.0.0/8; none
knows nothing without cluster CIDRs, whatever the node's pod CIDRs are
  ClusterCIDR podCidrs=10.0.0.0/8,fd00::/64,11.0.0.0/8
  none; none
uses the node's first pod CIDR of each family
  NodeCIDR podCidrs=10.0.0.0/8,fd00::/64,11.0.0.0/8 clusterCidrs=
  byCidr 10.0.0.0/8; byCidr fd00::/64
knows nothing without pod CIDRs
  NodeCIDR clusterCidrs=10.0.0.0/8,fd00::/64,11.0.0.0/8
  none; none
knows nothing by a range that contains every address
  ClusterCIDR clusterCidrs=0.0.0.0/0,::/0
  none; none
uses the bridge for both families
  BridgeInterface bridgeInterface=cni0
  byBridge cni0; byBridge cni0
uses the interface prefix for both families
  InterfaceNamePrefix interfaceNamePrefix=veth
  byInterfacePrefix veth; byInterfacePrefix veth`;

for (const [name, given = "", expected] of textRows(ROWS)) {
  Deno.test(`localTrafficDetector() ${name}`, () => {
    const [mode, ...fields] = given.split(" ");
    const options = fields.map((field) => field.split("=")).map((
      [key = "", value = ""],
    ) => [key, key.endsWith("Cidrs") ? value.split(",").filter(Boolean).map(parseCidr) : value]);
    const of = (family: IpFamily) => {
      const given = { mode, ...Object.fromEntries(options) } as LocalTrafficOptions;
      return Object.values(localTrafficDetector(given, family)).join(" ");
    };
    assertEquals(`${of("IPv4")}; ${of("IPv6")}`, expected);
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
