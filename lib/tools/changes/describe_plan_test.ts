import { assertEquals } from "@std/assert";
import { testEndpoint, testServicePort } from "../../../tests/support/builders/builders.ts";
import { parseIpAddress } from "../../net/ip_address.ts";
import { parsePort } from "../../net/port.ts";
import type { Endpoint } from "../../proxy/endpoint.ts";
import { planService } from "../../proxy/service_plan.ts";
import type { ServicePort } from "../../proxy/service_port.ts";
import { describePlan } from "./describe_plan.ts";

const CONTEXT = {
  node: { name: "node-a" },
  options: { localTraffic: { kind: "none" }, masqueradeAll: false },
} as const;

const [A, B] = ["10.1.0.5", "10.1.0.6"].map((address) => testEndpoint(address)) as [
  Endpoint,
  Endpoint,
];

function plan(endpoints: readonly Endpoint[], overrides: Partial<ServicePort> = {}) {
  return planService(testServicePort(overrides), endpoints, CONTEXT);
}

Deno.test("describePlan() reports a new verdict and which endpoints differ", () => {
  assertEquals(describePlan(undefined, plan([A])), ["1 endpoint"]);
  assertEquals(describePlan(plan([A]), undefined), []);
  assertEquals(describePlan(plan([A]), plan([A, B])), [
    "1 endpoint -> 2 endpoints",
    "endpoint 10.1.0.6:80 new",
  ]);
  assertEquals(describePlan(plan([A]), plan([])), [
    "1 endpoint -> refuses",
    "endpoint 10.1.0.5:80 gone",
  ]);
});

Deno.test("describePlan() reports traffic from outside only if it differs", () => {
  const outside = { nodePort: parsePort(30080), externallyAccessible: true };
  assertEquals(describePlan(plan([A], outside), plan([], outside)), [
    "1 endpoint -> refuses",
    "endpoint 10.1.0.5:80 gone",
  ]);
  const local = { ...outside, externalTrafficPolicy: "Local" } as const;
  assertEquals(describePlan(plan([A], outside), plan([A], local)), [
    "from outside: 1 endpoint -> drops",
    "from outside: endpoint 10.1.0.5:80 gone",
    "addresses of clients outside: hidden behind this node's -> kept",
  ]);
});

Deno.test("describePlan() names addresses, and changes that no verdict shows", () => {
  const address = parseIpAddress("203.0.113.1");
  const reached = { externalIps: [address], externallyAccessible: true };
  assertEquals(describePlan(plan([A]), plan([A], reached)), ["external IP 203.0.113.1 new"]);
  const notReady = testEndpoint("10.1.0.6", { ready: false, serving: false });
  assertEquals(describePlan(plan([A]), plan([A, notReady])), [
    "known endpoints 1 -> 2",
    "conditions of endpoints",
  ]);
});

Deno.test("describePlan() names settings by annotations", () => {
  const before = plan([A], { edge: { balance: "source-hash", maxConnections: 5 } });
  assertEquals(describePlan(before, plan([A], { edge: { maxConnections: 6 } })), [
    "setting balance source-hash gone",
    "setting max-connections 5 gone",
    "setting max-connections 6 new",
  ]);
});
