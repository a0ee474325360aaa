/** The verdicts and masquerading of plans are held by `tests/packet_flow`. */
import { parseCidr } from "../net/cidr.ts";
import { parsePort } from "../net/port.ts";
import { assertStrictEquals } from "@std/assert";
import { testEndpoint, testServicePort } from "../../tests/support/builders/builders.ts";
import type { ServicePort } from "./service_port.ts";
import { planService } from "./service_plan.ts";

const CONTEXT: Parameters<typeof planService>[2] = {
  node: { name: "node-a", zone: "zone-a" },
  options: {
    localTraffic: { kind: "byCidr", cidr: parseCidr("10.0.0.0/8") },
    masqueradeAll: false,
  },
};

const LOCAL = testEndpoint("10.180.0.1", { isLocal: true });
const REMOTE = testEndpoint("10.180.1.1");
function accessible(overrides: Partial<ServicePort> = {}): ServicePort {
  return testServicePort({
    nodePort: parsePort(30080),
    externallyAccessible: true,
    ...overrides,
  });
}

Deno.test("planService() shares one list if all endpoints may be picked", () => {
  const endpoints = [LOCAL, REMOTE];
  const plan = planService(accessible(), endpoints, CONTEXT);
  assertStrictEquals(plan.reachable, endpoints);
  assertStrictEquals(plan.endpoints, endpoints);
  assertStrictEquals(plan.internal, plan.external);
});
