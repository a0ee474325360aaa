import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import { testSharedPlan } from "../../tests/support/builders/service_plans.ts";
import type { ContainerName } from "./containers.ts";
import { defaultRenderOptions, type NftablesRenderOptions } from "./render_options.ts";
import { sharedElements } from "./shared_elements.ts";

const SHARED = testSharedPlan({
  nodePortAddresses: ["192.168.0.2", "127.0.0.1", "::1"].map(parseIpAddress),
  serviceCidrs: ["172.30.0.0/16", "172.30.1.0/24", "172.31.0.1/32"].map(parseCidr),
});

function keysOf(
  name: ContainerName,
  options: Partial<NftablesRenderOptions> = {},
  family: IpFamily = "IPv4",
): readonly string[] {
  return sharedElements(SHARED, { ...defaultRenderOptions(family), ...options })
    .filter(({ container }) => container === name).map(({ key }) => key);
}

Deno.test("sharedElements() leaves out ranges of Services that lie in others", () => {
  assertEquals(keysOf("service-cidrs"), ["172.30.0.0/16", "172.31.0.1"]);
});

Deno.test("sharedElements() lists the addresses of node ports where they are not all of the node", () => {
  assertEquals(keysOf("node-port-ips"), []);
  const nodePortAddresses = { kind: "cidrs", cidrs: [parseCidr("192.168.0.0/16")] } as const;
  assertEquals(keysOf("node-port-ips", { nodePortAddresses }), ["192.168.0.2"]);
});

Deno.test("sharedElements() has loopback only where it was asked for, and never in IPv6", () => {
  const asked = {
    nodePortAddresses: { kind: "cidrs", cidrs: [parseCidr("0.0.0.0/0")] },
    localhostNodePorts: true,
  } as const;
  assertEquals(keysOf("node-port-ips", asked).includes("127.0.0.1"), true);
  assertEquals(keysOf("node-port-ips", asked, "IPv6"), ["192.168.0.2"]);
});

Deno.test("sharedElements() tells where the numbers of fixed chains lead", () => {
  const values = sharedElements(SHARED, defaultRenderOptions("IPv4"))
    .filter(({ container }) => container === "numbered-chains").map(({ value }) => value);
  assertEquals(values, ["drop", "goto reject-all", "goto check-source-ranges"]);
});
