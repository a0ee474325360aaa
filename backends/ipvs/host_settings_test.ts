import { assertEquals } from "@std/assert";
import { ipvsHostSettings } from "./backend.ts";

const INTERFACES = ["eth0", "bond0.100", "eth0"];

function settings(
  kernelRelease: string,
  family: "IPv4" | "IPv6" = "IPv4",
  interfaces = INTERFACES,
): string[] {
  return ipvsHostSettings(family, kernelRelease, interfaces).map(({ name, value }) =>
    `${name}=${value}`
  );
}

for (
  const [kernelRelease, isSet] of [
    ["3.10.0-1160.el7", false],
    ["4.1.0", true],
    ["5.4.0-99-generic", true],
    ["5.8.18", true],
    ["5.9.0", false],
    ["5.10.1", false],
    ["6.18.2", false],
    ["unknown", false],
  ] as const
) {
  Deno.test(`ipvsHostSettings() of kernel ${kernelRelease}: conn_reuse_mode ${isSet ? "off" : "as it is"}`, () => {
    assertEquals(settings(kernelRelease).includes("net.ipv4.vs.conn_reuse_mode=0"), isSet);
  });
}

Deno.test("ipvsHostSettings() touches ARP of interfaces with an address only, and only if asked", () => {
  const arp = (family: "IPv4" | "IPv6", interfaces: string[]) =>
    settings("6.1.0", family, interfaces).filter((each) => each.includes("arp"));
  assertEquals([arp("IPv4", []), arp("IPv6", INTERFACES)], [[], []]);
  assertEquals(arp("IPv4", INTERFACES), [
    "net.ipv4.conf.bond0/100.arp_ignore=1",
    "net.ipv4.conf.bond0/100.arp_announce=2",
    "net.ipv4.conf.eth0.arp_ignore=1",
    "net.ipv4.conf.eth0.arp_announce=2",
  ]);
});
