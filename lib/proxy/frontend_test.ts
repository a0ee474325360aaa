import { assertEquals } from "@std/assert";
import { testEndpoint, testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { hairpinEndpoints, isExternal } from "./frontend.ts";

const LOCAL = testEndpoint("10.0.0.1:80", { isLocal: true, nodeName: "here" });
const REMOTE = testEndpoint("10.0.0.2:80", { nodeName: "there" });
const NOWHERE = testEndpoint("10.0.0.3:80");
const reachable = [LOCAL, REMOTE, NOWHERE];

for (
  const [name, plan, expected] of [
    ["of a cluster IP", {}, [LOCAL, NOWHERE]],
    ["of policy Cluster", { nodePort: 30080 }, [LOCAL, NOWHERE]],
    ["of policy Local", { nodePort: 30080, externalTrafficPolicy: "Local" }, reachable],
    ["of policy Local without an address for it", { externalTrafficPolicy: "Local" }, [
      LOCAL,
      NOWHERE,
    ]],
  ] as const
) {
  Deno.test(`hairpinEndpoints() ${name}`, () => {
    assertEquals(hairpinEndpoints(testServicePlan({ ...plan, reachable })), expected);
  });
}

Deno.test("isExternal() looks for each kind of address for clients outside", () => {
  assertEquals(
    [
      {},
      { nodePort: 30080 },
      { externalIps: ["192.0.2.1"] },
      { loadBalancerVips: ["192.0.2.1"] },
    ].map((options) => isExternal(testServicePlan(options))),
    [false, true, true, true],
  );
});
