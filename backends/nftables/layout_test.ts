import { assertEquals, assertStringIncludes } from "@std/assert";
import {
  testForward,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { defaultRenderOptions } from "../../tests/support/builders/nftables_render_options.ts";
import { sharedElements, unsupported } from "./layout.ts";
import { ALL_FEATURES } from "./render_options.ts";

Deno.test("unsupported() says how many endpoints can be numbered", () => {
  const to = Array.from({ length: 32_769 }, (_, index) => `10.0.${index >> 8}.${index & 255}:80`);
  const most = testServicePlan({ to: to.slice(1) });
  assertEquals(unsupported(most, ALL_FEATURES), undefined);
  const { reason = "" } = unsupported({ ...most, internal: testForward(...to) }, ALL_FEATURES) ??
    {};
  assertStringIncludes(reason, "among 32769 endpoints");
  assertStringIncludes(reason, "32768 of each Service at most");
  const sticky = { ...most, affinityTimeoutSeconds: 60 };
  const features = { ...ALL_FEATURES, affinity: false };
  assertEquals(
    unsupported({ ...testServicePlan(), affinityTimeoutSeconds: 60 }, features),
    undefined,
  );
  assertEquals(unsupported(sticky, ALL_FEATURES), undefined);
  const other = { ...sticky, internal: testForward(...to.slice(0, 1)) };
  assertStringIncludes(unsupported(other, ALL_FEATURES)?.reason ?? "", "among 32769 endpoints");
});

Deno.test("sharedElements() leaves out ranges of Services that are inside of others", () => {
  const serviceCidrs = ["172.30.0.0/16", "172.30.1.0/24", "172.31.0.1/32"].map(parseCidr);
  const elements = sharedElements({
    shared: testSharedPlan({ serviceCidrs }),
    options: defaultRenderOptions("IPv4"),
  });
  const ranges = elements.filter(({ kind }) => kind === "service-cidrs").map(({ name }) => name);
  assertEquals(ranges, ["172.30.0.0/16", "172.31.0.1"]);
});
