import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../../tests/support/builders/nftables_render_options.ts";
import {
  testForward,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import type { ContainerName } from "./containers.ts";
import type { EntryId } from "./entry.ts";
import { NftablesLayout, sharedElements, unsupported } from "./layout.ts";
import { ALL_FEATURES, type NftablesRenderOptions } from "./render_options.ts";

function plan(number: number, name = `service-${number}`): ServicePlan {
  return testServicePlan({ name, clusterIp: `172.30.0.${number}`, to: ["10.0.0.1:80"] });
}

function testLayout(features = ALL_FEATURES): NftablesLayout {
  return new NftablesLayout(testSharedPlan(), { ...defaultRenderOptions("IPv4"), features });
}

function vip(number: number): EntryId {
  return `service-ips 172.30.0.${number} . tcp . 80` as EntryId;
}

/** Returns the owner of the entry at an address. */
function ownerAt(layout: NftablesLayout, number: number): string | undefined {
  return layout.entry(vip(number), undefined)?.plan.key;
}

Deno.test("NftablesLayout touches only the entries of a ServicePort that changes", () => {
  const layout = testLayout();
  for (let number = 1; number <= 100; number++) layout.set(plan(number));
  assertEquals([layout.dirty.size, [...layout.ids()].length], [200, 200]);
  layout.settle();
  assertEquals(layout.dirty.size, 0);
  const entries = [vip(50), "cluster-ips 172.30.0.50"];
  layout.set(plan(50));
  assertEquals([...layout.dirty].sort(), entries.toSorted());
  layout.settle();
  const known = layout.plan(plan(50).key);
  if (known) layout.set(known);
  assertEquals(layout.dirty.size, 0, "the very same plan");
  layout.delete(plan(50).key);
  assertEquals([...layout.dirty].sort(), entries.toSorted());
  assertEquals([layout.entry(vip(50), undefined), [...layout.ids()].length], [undefined, 198]);
});

Deno.test("NftablesLayout gives back the very entry that was applied, while nothing changed", () => {
  const layout = testLayout();
  layout.set(plan(1));
  const before = layout.entry(vip(1), undefined);
  assert(before !== undefined && layout.entry(vip(1), before) === before);
  layout.set(plan(1));
  assert(layout.entry(vip(1), before) !== before);
});

Deno.test("NftablesLayout keeps a ServicePort in quarantine until it is set again", () => {
  const layout = testLayout();
  layout.set(plan(1));
  layout.settle();
  const item = { key: plan(1).key, reason: "Cannot apply it: the kernel refuses" };
  layout.quarantine(item);
  assertEquals([layout.quarantined, layout.plan(item.key)], [[item], undefined]);
  assertEquals([ownerAt(layout, 1), layout.dirty.has(vip(1))], [undefined, true]);
  layout.set(plan(1));
  assertEquals([layout.quarantined, ownerAt(layout, 1)], [[], item.key]);
  layout.quarantine(item);
  layout.delete(item.key);
  assertEquals(layout.quarantined, []);
});

Deno.test("NftablesLayout reports features that a kernel cannot express", () => {
  const layout = testLayout({ ...ALL_FEATURES, affinity: false });
  const sticky = { ...plan(1), affinityTimeoutSeconds: 60 };
  layout.set(sticky);
  layout.set(plan(2));
  layout.set({ ...testServicePlan({ name: "idle" }), affinityTimeoutSeconds: 60 });
  assertEquals(layout.quarantined.map(({ key }) => key), [sticky.key]);
  assertEquals([ownerAt(layout, 1), ownerAt(layout, 2)], [undefined, plan(2).key]);
  layout.set(plan(1));
  assertEquals(layout.quarantined, []);
});

Deno.test("NftablesLayout uses the current ranges of Services", () => {
  const layout = testLayout();
  const ranges = () =>
    layout.sharedElements().filter(({ kind }) => kind === "service-cidrs")
      .map(({ name }) => name);
  assertEquals(ranges(), []);
  layout.setShared(testSharedPlan({ serviceCidrs: [parseCidr("172.30.0.0/16")] }));
  assertEquals(ranges(), ["172.30.0.0/16"]);
});

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
