import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import { randomServicePlan } from "../../tests/support/builders/random_service_plan.ts";
import {
  testEndpoint,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { type ChainRef, IptablesLayout } from "./layout.ts";
import { ALL_FEATURES } from "./render_options.ts";

function plan(number: number, name = `service-${number}`): ServicePlan {
  return testServicePlan({ name, clusterIp: `172.30.0.${number}`, to: ["10.0.0.1:80"] });
}

function testLayout(features = ALL_FEATURES): IptablesLayout {
  return new IptablesLayout(testSharedPlan(), { ...defaultRenderOptions("IPv4"), features });
}

Deno.test("IptablesLayout keeps a ServicePort in quarantine until it is set again", () => {
  const layout = testLayout();
  layout.set(plan(1));
  const item = { key: plan(1).key, reason: "Cannot apply it: the kernel refuses" };
  layout.quarantine(item);
  assertEquals(layout.quarantined, [item]);
  assertEquals(layout.plan(item.key), undefined);
  layout.set(plan(1));
  assertEquals(layout.quarantined, []);
  layout.quarantine(item);
  layout.delete(item.key);
  assertEquals(layout.quarantined, []);
});

Deno.test("IptablesLayout reports features that a kernel cannot express", () => {
  const layout = testLayout({ ...ALL_FEATURES, recent: false });
  layout.set({ ...plan(1), affinityTimeoutSeconds: 60 });
  layout.set(plan(2));
  assertEquals(layout.quarantined.map(({ key }) => key), [plan(1).key]);
});

Deno.test("IptablesLayout renders one ServicePort for an endpoint that thousands have", () => {
  const layout = testLayout();
  const endpoint = testEndpoint("10.0.0.1:80", { isLocal: true });
  let asked = 0;
  for (let number = 0; number < 1000; number++) {
    const clusterIp = `172.30.${number >> 8}.${number & 255}`;
    const shared = testServicePlan({ name: `s-${number}`, clusterIp, reachable: [endpoint] });
    const counted = Object.defineProperty({ ...shared }, "reachable", {
      get: () => (asked++, shared.reachable),
    });
    layout.set(counted);
  }
  layout.settle();
  const hairpin = [...layout.chains()].filter(({ name }) => name.startsWith("KUBE-HAIRPIN"));
  asked = 0;
  const rules = hairpin.flatMap((ref) => layout.content(ref)?.rules ?? []);
  assertEquals(rules.filter((rule) => rule.includes("-s 10.0.0.1 ")).length, 1);
  assert(asked < 10, `${asked} were rendered`);
});

Deno.test("IptablesLayout has the same rules whatever was there before", () => {
  const plans = fc.array(randomServicePlan, { minLength: 30, maxLength: 120 });
  fc.assert(
    fc.property(plans, (made) => {
      const unique = [...new Map(made.map((each) => [each.key, each])).values()];
      const usual = testLayout();
      for (const each of unique) usual.set(each);
      const before = testLayout();
      for (const each of made.toReversed()) before.set(each);
      for (const each of made.slice(0, 10)) before.delete(each.key);
      before.settle();
      for (const each of unique) before.set(each);
      const name = ({ table, name }: ChainRef) => `${table} ${name}`;
      assertEquals([...before.chains()].map(name).sort(), [...usual.chains()].map(name).sort());
      for (const ref of usual.chains()) assertEquals(before.content(ref), usual.content(ref));
      assertEquals(before.quarantined, usual.quarantined);
    }),
    { numRuns: 25 },
  );
});
