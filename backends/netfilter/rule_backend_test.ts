import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import {
  testForward,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { inspectService } from "./rule_backend.ts";

const SHARED = testSharedPlan({ nodePortAddresses: [parseIpAddress("192.168.0.2")] });
const EVERYWHERE = {
  clusterIp: "172.30.0.1",
  externalIps: ["192.0.2.1"],
  loadBalancerVips: ["192.0.2.2"],
  nodePort: 30_080,
  to: ["10.0.0.1:80"],
};

/** State by role. */
function states(
  plan: ReturnType<typeof testServicePlan>,
  quarantined: readonly Quarantined[] = [],
): Record<string, string> {
  const { addresses } = inspectService(plan, SHARED, quarantined);
  return Object.fromEntries(addresses.map(({ role, state }) => [role, state]));
}

Deno.test("inspectService() has every address of a ServicePort, with its port", () => {
  const { key, addresses } = inspectService(testServicePlan(EVERYWHERE), SHARED, []);
  assertEquals(key, testServicePlan(EVERYWHERE).key);
  assertEquals(addresses.map(({ role, address, port }) => `${role} ${address} ${port}`), [
    "ClusterIP 172.30.0.1 80",
    "ExternalIP 192.0.2.1 80",
    "LoadBalancer 192.0.2.2 80",
    "NodePort 192.168.0.2 30080",
  ]);
});

Deno.test("inspectService() distinguishes inside from outside, and shows refusals", () => {
  const [serving, refusing] = ["serving", "refusing"];
  const outside = (state: string) => ({ ExternalIP: state, LoadBalancer: state, NodePort: state });
  assertEquals(states(testServicePlan(EVERYWHERE)), {
    ClusterIP: serving,
    ...outside(serving!),
  });
  assertEquals(states(testServicePlan({ ...EVERYWHERE, internal: { kind: "drop" } })), {
    ClusterIP: refusing,
    ...outside(serving!),
  });
  const external = testForward();
  assertEquals(states(testServicePlan({ ...EVERYWHERE, external })), {
    ClusterIP: serving,
    ...outside(refusing!),
  });
});

Deno.test("inspectService() shows quarantine of all addresses, or of the external ones", () => {
  const plan = testServicePlan(EVERYWHERE);
  const whole = states(plan, [{ key: plan.key, reason: "no" }]);
  assertEquals(new Set(Object.values(whole)), new Set(["quarantined"]));
  const part = states(plan, [{ key: plan.key, address: "external addresses", reason: "no" }]);
  assertEquals([part.ClusterIP, part.NodePort], ["serving", "quarantined"]);
  const other = states(plan, [{ key: testServicePlan({ name: "other" }).key, reason: "no" }]);
  assertEquals(other.ClusterIP, "serving");
});
