import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import type { Quarantined } from "../../lib/proxy/data_plane.ts";
import type { ServicePlan } from "../../lib/proxy/service_plan.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import {
  testForward,
  testProxyPlan,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { inspectPlan, inspectService } from "./rule_backend.ts";

const clock = new FakeClock();
const API = testServicePlan({ name: "api", clusterIp: "127.96.0.2" });
const WEB = testServicePlan();
const GONE = testServicePlan({ name: "gone" });
const PLAN = testProxyPlan([API, WEB]);
const QUARANTINED = [{ key: WEB.key, reason: "no" }, { key: API.key, reason: "nor this" }];

Deno.test("inspectPlan() has nothing before the first plan", async () => {
  assertEquals(await inspectPlan(undefined, { clock, quarantined: QUARANTINED }), {
    services: [],
    quarantined: [],
  });
});

Deno.test("inspectPlan() returns all ServicePorts in the order of the plan, with the state of each", async () => {
  const { services, quarantined } = await inspectPlan(PLAN, {
    clock,
    quarantined: QUARANTINED.slice(0, 1),
  });
  assertEquals(services.map(({ key, addresses }) => [key, addresses.map(({ state }) => state)]), [
    [API.key, ["refusing"]],
    [WEB.key, ["quarantined"]],
  ]);
  assertEquals(quarantined, QUARANTINED.slice(0, 1));
});

Deno.test("inspectPlan() has only those that were asked for and that there are", async () => {
  const keys = [WEB.key, GONE.key];
  const { services, quarantined } = await inspectPlan(PLAN, {
    clock,
    keys,
    quarantined: QUARANTINED,
  });
  assertEquals(services.map(({ key }) => key), [WEB.key]);
  assertEquals(quarantined, QUARANTINED.slice(0, 1));
  assertEquals(await inspectPlan(PLAN, { clock, keys: [], quarantined: QUARANTINED }), {
    services: [],
    quarantined: [],
  });
});

Deno.test("inspectPlan() returns counters, if there are any", async () => {
  const counted = { bytesFromClients: 3, bytesToClients: 4 };
  const trafficOf = (service: ServicePlan) => service === WEB ? counted : undefined;
  const { services } = await inspectPlan(PLAN, { clock, trafficOf });
  assertEquals(services.map(({ traffic }) => traffic), [undefined, counted]);
  assertEquals(services.map((service) => "traffic" in service), [false, true]);
});

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
  const { addresses } = inspectService(plan, { shared: SHARED, quarantined });
  return Object.fromEntries(addresses.map(({ role, state }) => [role, state]));
}

Deno.test("inspectService() has every address of a ServicePort, with its port", () => {
  const { key, addresses } = inspectService(testServicePlan(EVERYWHERE), {
    shared: SHARED,
    quarantined: [],
  });
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
