import { assert, assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { testServicePlan, testSharedPlan } from "../../tests/support/builders/service_plans.ts";
import type { EntryId } from "./claims.ts";
import { NftablesLayout } from "./layout.ts";
import { ALL_FEATURES, defaultRenderOptions } from "./render_options.ts";

function plan(number: number, name = `service-${number}`): ServicePlan {
  return testServicePlan({ name, clusterIp: `172.30.0.${number}`, to: ["10.0.0.1:80"] });
}

function testLayout(features = ALL_FEATURES): NftablesLayout {
  return new NftablesLayout(testSharedPlan(), { ...defaultRenderOptions("IPv4"), features });
}

function vip(number: number): EntryId {
  return `service-ips 172.30.0.${number} . tcp . 80` as EntryId;
}

/** Whose entry stands at an address. */
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

Deno.test("NftablesLayout tells what a kernel cannot express", () => {
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

Deno.test("NftablesLayout takes the ranges of Services as they are now", () => {
  const layout = testLayout();
  const ranges = () =>
    layout.sharedElements().filter(({ container }) => container === "service-cidrs")
      .map(({ key }) => key);
  assertEquals(ranges(), []);
  layout.setShared(testSharedPlan({ serviceCidrs: [parseCidr("172.30.0.0/16")] }));
  assertEquals(ranges(), ["172.30.0.0/16"]);
});
