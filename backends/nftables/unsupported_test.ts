import { assertEquals, assertStringIncludes } from "@std/assert";
import { testForward, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { ALL_FEATURES } from "./render_options.ts";
import { unsupported } from "./unsupported.ts";

Deno.test("unsupported() finds nothing wrong with a ServicePort on a kernel that has everything", () => {
  const plan = testServicePlan({ to: ["10.0.0.1:80"], affinityTimeoutSeconds: 60 });
  assertEquals(unsupported(plan, ALL_FEATURES), undefined);
});

Deno.test("unsupported() says why session affinity gets no rules, where anybody is served", () => {
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
