import { assert, assertEquals } from "@std/assert";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import {
  testEndpoint,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { IptablesLayout } from "./layout.ts";
import { ALL_FEATURES } from "./render_options.ts";

function testLayout(features = ALL_FEATURES): IptablesLayout {
  return new IptablesLayout(testSharedPlan(), { ...defaultRenderOptions("IPv4"), features });
}

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
