import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import {
  testForward,
  type TestServicePlan,
  testServicePlan,
  testSharedPlan,
} from "../../tests/support/builders/service_plans.ts";
import { endpointListsOf, EndpointLoops, NO_PART, withoutEndpoints } from "./endpoint_loops.ts";
import { serviceAddresses } from "./listeners.ts";

const NODE = testSharedPlan({
  nodePortAddresses: ["192.0.2.10", "127.0.0.1", "::1"].map(parseIpAddress),
});

/** Loops of these ServicePorts, with the part of each. */
function loopsOf(
  plans: readonly TestServicePlan[],
  options?: ConstructorParameters<typeof EndpointLoops>[0],
) {
  const loops = new EndpointLoops(options);
  const services = plans.map((given, index) => testServicePlan({ name: `s${index}`, ...given }));
  const parts = services.map((plan) => ({
    frontends: serviceAddresses(plan, NODE),
    endpoints: endpointListsOf(plan),
  }));
  for (const [index, plan] of services.entries()) {
    loops.replace(plan, { from: NO_PART, to: parts[index]! });
  }
  return { loops, services, parts };
}

Deno.test("EndpointLoops.find() knows every address of every Service", async (t) => {
  const frontend = {
    clusterIp: "10.96.0.1",
    externalIps: ["203.0.113.1", "2001:db8::1"],
    loadBalancerVips: ["203.0.113.9"],
    nodePort: 30_080,
  };
  const cases: [string, string, boolean][] = [
    ["a cluster IP", "10.96.0.1:80", true],
    ["an external IP", "203.0.113.1:80", true],
    ["of IPv6", "[2001:db8::1]:80", true],
    ["a load balancer's", "203.0.113.9:80", true],
    ["a node port", "192.0.2.10:30080", true],
    ["a node port on loopback", "127.0.0.1:30080", true],
    ["a node port by the unspecified address", "0.0.0.0:30080", true],
    ["a node port by that of IPv6", "[::]:30080", true],
    ["the same in other words", "[::ffff:10.96.0.1]:80", true],
    ["what may stand in for a cluster IP", "127.112.3.4:8080", true],
    ["another port", "10.96.0.1:81", false],
    ["the node port of another node", "192.0.2.11:30080", false],
    ["another port of the node", "192.0.2.10:8080", false],
    ["another loopback address", "127.0.0.2:30080", false],
    ["a pod", "10.0.0.1:80", false],
  ];
  for (const [name, endpoint, expected] of cases) {
    await t.step(name, () => {
      const { loops, services } = loopsOf([frontend, { clusterIp: "10.96.0.2", to: [endpoint] }]);
      assertEquals(loops.find(services[1]!).size, expected ? 1 : 0);
    });
  }
});

Deno.test("EndpointLoops.find() goes by the protocol", () => {
  const { loops, services } = loopsOf([
    { clusterIp: "10.96.0.1", protocol: "UDP" },
    { clusterIp: "10.96.0.2", to: ["10.96.0.1:80"] },
  ]);
  assertEquals(loops.find(services[1]!).size, 0);
});

Deno.test("EndpointLoops.find() knows listeners for this machine only", async (t) => {
  const cases: [string, string, boolean][] = [
    ["127.0.0.1", "127.0.0.1:10249", true],
    ["127.0.0.1", "0.0.0.0:10249", true],
    ["127.0.0.1", "127.0.0.2:10249", false],
    ["127.0.0.1", "127.0.0.1:10256", false],
    ["0.0.0.0", "127.0.0.2:10249", true],
    ["0.0.0.0", "[::1]:10249", false],
    ["0.0.0.0", "192.0.2.10:10249", false],
    ["::", "127.0.0.1:10249", true],
    ["::", "[::1]:10249", true],
  ];
  for (const [hostname, endpoint, expected] of cases) {
    await t.step(`${hostname} and ${endpoint}`, () => {
      const { loops, services } = loopsOf([{ to: [endpoint] }], {
        localListeners: [{ hostname, port: 10_249 }],
      });
      assertEquals(loops.find(services[0]!).size, expected ? 1 : 0);
    });
  }
});

Deno.test("EndpointLoops.takeAffected() names ServicePorts whose endpoint became or stopped being a frontend, once", () => {
  const { loops, services: [frontend, a, b], parts } = loopsOf([
    { clusterIp: "10.96.0.1" },
    { clusterIp: "10.96.0.2", to: ["10.96.0.1:80", "10.0.0.1:80"] },
    { clusterIp: "10.96.0.3", to: ["10.96.0.1:80"] },
    { clusterIp: "10.96.0.4", to: ["10.0.0.1:80"] },
  ]);
  loops.takeAffected();
  loops.replace(frontend!, { from: parts[0]!, to: parts[0]! });
  assertEquals([...loops.takeAffected()], []);
  loops.replace(frontend!, { from: parts[0]!, to: NO_PART });
  assertEquals([...loops.takeAffected()].sort(), [a!.key, b!.key]);
  loops.replace(a!, { from: parts[1]!, to: NO_PART });
  loops.replace(frontend!, { from: NO_PART, to: parts[0]! });
  assertEquals([...loops.takeAffected()], [b!.key]);
  assertEquals([...loops.takeAffected()], []);
});

Deno.test("withoutEndpoints() refuses if none is left", () => {
  const plan = testServicePlan({
    internal: testForward("10.0.0.1:80", "10.0.0.2:80"),
    external: testForward("10.0.0.1:80"),
  });
  const [key] = plan.external.kind === "forward"
    ? plan.external.endpoints.map(({ key }) => key)
    : [];
  const { internal, external, externalFromCluster } = withoutEndpoints(plan, new Map([[key!, ""]]));
  assertEquals([internal, external], [testForward("10.0.0.2:80"), { kind: "reject" }]);
  assertEquals(external === externalFromCluster, true, "equal verdicts stay the same object");
});
