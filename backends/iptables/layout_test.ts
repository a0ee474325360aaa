import { assert, assertEquals } from "@std/assert";
import { defaultRenderOptions } from "../../tests/support/builders/iptables_render_options.ts";
import {
  testEndpoint,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { IptablesLayout } from "./layout.ts";

Deno.test("IptablesLayout renders one ServicePort for an endpoint that thousands have", () => {
  const layout = new IptablesLayout(testSharedPlan(), defaultRenderOptions("IPv4"));
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
  asked = 0;
  const hairpin = [...layout.contents(({ name }) => name.startsWith("KUBE-HAIRPIN"))];
  const rules = hairpin.flatMap(({ rules }) => rules);
  assertEquals(rules.filter((rule) => rule.includes("-s 10.0.0.1 ")).length, 1);
  assert(asked < 10, `${asked} were rendered`);
});
