import { assertEquals, assertStringIncludes } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import { defaultRenderOptions } from "../../tests/support/builders/nftables_render_options.ts";
import {
  testForward,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { rangeText } from "./service_objects.ts";
import { sharedElements, unsupported } from "./layout.ts";
import { ALL_FEATURES, type NftablesRenderOptions } from "./render_options.ts";

const SHARED = testSharedPlan({
  nodePortAddresses: ["192.168.0.2", "127.0.0.1", "::1"].map(parseIpAddress),
  serviceCidrs: ["172.30.0.0/16", "172.30.1.0/24", "172.31.0.1/32"].map(parseCidr),
});

function keysOf(
  name: string,
  options: Partial<NftablesRenderOptions> = {},
  family: IpFamily = "IPv4",
): readonly string[] {
  return sharedElements(SHARED, { ...defaultRenderOptions(family), ...options })
    .filter(({ kind }) => kind === name).map((each) => each.name);
}

Deno.test("sharedElements() leaves out ranges of Services that are inside of others", () => {
  assertEquals(keysOf("service-cidrs"), ["172.30.0.0/16", "172.31.0.1"]);
});

Deno.test("sharedElements() lists the addresses of node ports if they are not all of the node", () => {
  assertEquals(keysOf("node-port-ips"), []);
  const nodePortAddresses = { kind: "cidrs", cidrs: [parseCidr("192.168.0.0/16")] } as const;
  assertEquals(keysOf("node-port-ips", { nodePortAddresses }), ["192.168.0.2"]);
});

Deno.test("sharedElements() has loopback only if it was asked for, and never in IPv6", () => {
  const asked = {
    nodePortAddresses: { kind: "cidrs", cidrs: [parseCidr("0.0.0.0/0")] },
    localhostNodePorts: true,
  } as const;
  assertEquals(keysOf("node-port-ips", asked).includes("127.0.0.1"), true);
  assertEquals(keysOf("node-port-ips", asked, "IPv6"), ["192.168.0.2"]);
});

Deno.test("sharedElements() contain the numbers of the permanent chains", () => {
  const values = sharedElements(SHARED, defaultRenderOptions("IPv4"))
    .filter(({ kind }) => kind === "numbered-chains").map(({ text }) => text);
  assertEquals(values, ["drop", "goto reject-all", "goto check-source-ranges"]);
});

Deno.test("unsupported() finds nothing wrong with a ServicePort on a kernel that has everything", () => {
  const plan = testServicePlan({ to: ["10.0.0.1:80"], affinityTimeoutSeconds: 60 });
  assertEquals(unsupported(plan, ALL_FEATURES), undefined);
});

Deno.test("unsupported() gives the reason why session affinity gets no rules, if any client is served", () => {
  const features = { ...ALL_FEATURES, affinity: false };
  const sticky = { affinityTimeoutSeconds: 60 };
  const plan = testServicePlan({ ...sticky, to: ["10.0.0.1:80"] });
  const { key, reason = "" } = unsupported(plan, features) ?? {};
  assertEquals(key, plan.key);
  assertStringIncludes(reason, "Cannot express session affinity");
  assertEquals(unsupported(testServicePlan(sticky), features), undefined);
  assertEquals(unsupported(testServicePlan({ to: ["10.0.0.1:80"] }), features), undefined);
});

Deno.test("unsupported() says how many endpoints can be numbered", () => {
  const to = Array.from({ length: 32_769 }, (_, index) => `10.0.${index >> 8}.${index & 255}:80`);
  const most = testServicePlan({ to: to.slice(1) });
  assertEquals(unsupported(most, ALL_FEATURES), undefined);
  const { reason = "" } = unsupported({ ...most, internal: testForward(...to) }, ALL_FEATURES) ??
    {};
  assertStringIncludes(reason, "among 32769 endpoints");
  assertStringIncludes(reason, "32768 of each Service at most");
  const sticky = { ...most, affinityTimeoutSeconds: 60 };
  assertEquals(unsupported(sticky, ALL_FEATURES), undefined);
  const other = { ...sticky, internal: testForward(...to.slice(0, 1)) };
  assertStringIncludes(unsupported(other, ALL_FEATURES)?.reason ?? "", "among 32769 endpoints");
});

Deno.test("rangeText() writes a range of one address as that address", () => {
  const cases = { "10.0.0.1/32": "10.0.0.1", "fd00::1/128": "fd00::1", "fd00::/32": "fd00::/32" };
  for (const [range, text] of Object.entries(cases)) {
    assertEquals(rangeText(parseCidr(range)), text);
  }
});
