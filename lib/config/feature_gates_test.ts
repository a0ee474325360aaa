import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import {
  checkFeatureGates,
  FEATURE_GATES,
  featureEnabled,
  RETIRED_GATES,
} from "./feature_gates.ts";

Deno.test("featureEnabled() goes by the gate, then by AllAlpha or AllBeta, then by the default", () => {
  const enabled = (gates: Readonly<Record<string, boolean>>) => [
    featureEnabled({ featureGates: gates }, "LoggingAlphaOptions"),
    featureEnabled({ featureGates: gates }, "ComponentFlagz"),
    featureEnabled({ featureGates: gates }, "AllowServiceExternalIPs"),
  ];
  assertEquals(enabled({}), [false, true, true]);
  assertEquals(enabled({ AllAlpha: true, AllBeta: false }), [true, false, true]);
  assertEquals(
    enabled({ AllAlpha: true, LoggingAlphaOptions: false, AllowServiceExternalIPs: false }),
    [false, true, false],
  );
});

Deno.test("featureEnabled() does not open or shut a locked gate", () => {
  assert(featureEnabled({ featureGates: { NFTablesProxyMode: false } }, "NFTablesProxyMode"));
});

Deno.test("checkFeatureGates() parts what is wrong from what has no effect", () => {
  const { problems, retired } = checkFeatureGates({
    NFTablesProxyMode: true,
    PreferSameTrafficDistribution: false,
    componentFlagz: true,
    SCTPSupport: false,
  });
  assertEquals(problems.map(({ name }) => name), [
    "PreferSameTrafficDistribution",
    "componentFlagz",
  ]);
  assertStringIncludes(problems[1]!.message, "did you mean 'ComponentFlagz'?");
  assertEquals(retired.map(({ name }) => name), ["SCTPSupport"]);
});

Deno.test("FEATURE_GATES and RETIRED_GATES name each gate once", () => {
  const names = [...FEATURE_GATES.map(({ name }) => name as string), ...RETIRED_GATES];
  assertEquals(names.length, new Set(names).size);
});
