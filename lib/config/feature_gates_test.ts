import { assert, assertEquals } from "@std/assert";
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

Deno.test("checkFeatureGates() ignores gates of other programs, also those with similar names", () => {
  // Gates of the kubelet, the API server and controllers; the last four are nearest to ours.
  for (
    const name of [
      ...[
        "RotateKubeletServerCertificate",
        "MemoryQoS",
        "APIServerTracing",
        "KubeletInUserNamespace",
      ],
      ...["ComponentSLIs", "MultiCIDRRangeAllocator", "WatchList", "AllowServiceLBStatusOnNonLB"],
    ]
  ) {
    const { problems, ignored } = checkFeatureGates({ [name]: true });
    assertEquals(problems, []);
    assertEquals(ignored, [{ name, message: `${name} is not a gate of kube-proxy; ignored` }]);
  }
});

Deno.test("checkFeatureGates() recognizes every known gate with two wrong letters as misspelt", () => {
  for (const { name } of FEATURE_GATES) {
    for (const typo of [name.slice(0, -2), `${name}xx`, name.toLowerCase(), `x${name.slice(1)}`]) {
      const { problems } = checkFeatureGates({ [typo]: true });
      assertEquals(problems.map((problem) => problem.name), [typo]);
    }
  }
});

Deno.test("FEATURE_GATES and RETIRED_GATES name each gate once", () => {
  const names = [...FEATURE_GATES.map(({ name }) => name as string), ...RETIRED_GATES];
  assertEquals(names.length, new Set(names).size);
});
