import { assertEquals } from "@std/assert";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import {
  testEndpoint,
  testProxyPlan,
  testServicePlan,
} from "../../../tests/support/builders/service_plans.ts";
import type { Quarantined } from "../../proxy/data_plane.ts";
import { EndpointTracker } from "../../proxy/endpoint_tracker.ts";
import type { ServiceFamily } from "./services.ts";
import { collectFamilyStatus } from "./service_status.ts";

const PLAN = testServicePlan({ name: "web", externalIps: ["203.0.113.1"] });

/** Returns the status of a family with one ServicePort. */
function statusOf(quarantined: readonly Quarantined[], { brief = false, plans = [PLAN] } = {}) {
  const family = {
    family: "IPv4",
    backend: new FakeBackend(),
    loop: { quarantined, status: () => ({}) },
    services: {
      plan: testProxyPlan(plans),
      pending: false,
      endpoints: new EndpointTracker("IPv4", "", 0),
    },
  };
  return collectFamilyStatus(new FakeClock(), family as unknown as ServiceFamily, {
    brief,
  });
}

Deno.test("collectFamilyStatus() gives every reason for which a ServicePort is in quarantine", async () => {
  const { key } = PLAN;
  const { services, quarantined } = await statusOf([
    { key, address: "203.0.113.1:80/TCP", reason: "it is taken" },
    { key, reason: "there is no endpoint" },
  ]);
  assertEquals(
    services.map(({ quarantined }) => quarantined),
    ["203.0.113.1:80/TCP: it is taken; there is no endpoint"],
  );
  assertEquals(quarantined.length, 2);
});

Deno.test("collectFamilyStatus() leaves Services out of a brief status, but not the quarantine", async () => {
  const { services, quarantined } = await statusOf(
    [{ key: PLAN.key, reason: "it is taken" }],
    { brief: true },
  );
  assertEquals([services.length, quarantined.length], [0, 1]);
});

Deno.test("collectFamilyStatus() counts the Services in a brief status, and names the first unhealthy ones", async () => {
  const endpoint = testEndpoint("10.0.0.1:80", { ready: false });
  const unhealthy = Array.from(
    { length: 25 },
    (_, index) => testServicePlan({ name: `sick-${index}`, endpoints: [endpoint] }),
  );
  const others = [
    testServicePlan({ name: "empty", endpoints: [] }),
    testServicePlan({ name: "web", endpoints: [testEndpoint("10.0.0.2:80")] }),
  ];
  const { services, counts } = await statusOf([], {
    brief: true,
    plans: [...others, ...unhealthy],
  });
  assertEquals(counts, { all: 27, unhealthy: 25, withoutEndpoints: 1 });
  assertEquals(services.length, 20);
  assertEquals(services.every(({ name }) => name.includes("sick-")), true);
});
