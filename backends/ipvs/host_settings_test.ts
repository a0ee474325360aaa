import { assertEquals } from "@std/assert";
import { ipvsHostSettings } from "./host_settings.ts";

const CONTEXT = {
  family: "IPv4",
  strictArp: false,
  kernelRelease: "6.1.0-9-amd64",
  interfaces: new Set(["eth0", "bond0.100"]),
} as const;

function settings(overrides: Partial<Parameters<typeof ipvsHostSettings>[0]> = {}): string[] {
  return ipvsHostSettings({ ...CONTEXT, ...overrides }).map(({ name, value }) =>
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
    assertEquals(settings({ kernelRelease }).includes("net.ipv4.vs.conn_reuse_mode=0"), isSet);
  });
}

Deno.test("ipvsHostSettings() touches ARP of interfaces with an address only, and only if asked", () => {
  assertEquals(settings().filter((each) => each.includes("arp")), []);
  assertEquals(
    settings({ strictArp: true, family: "IPv6" }).filter((each) => each.includes("arp")),
    [],
  );
  assertEquals(settings({ strictArp: true }).filter((each) => each.includes("arp")), [
    "net.ipv4.conf.bond0/100.arp_ignore=1",
    "net.ipv4.conf.bond0/100.arp_announce=2",
    "net.ipv4.conf.eth0.arp_ignore=1",
    "net.ipv4.conf.eth0.arp_announce=2",
  ]);
});
