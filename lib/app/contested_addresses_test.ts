import { assertEquals } from "@std/assert";
import { MemoryLogger } from "../../tests/support/memory_logger.ts";
import {
  testPlanChanges,
  testProxyPlan,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/service_plans.ts";
import type { ProxyPlan } from "../proxy/proxy_plan.ts";
import { ContestedAddresses } from "./contested_addresses.ts";

const [OLD, NEW] = ["2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"];

/** Syncs of these ServicePorts one after the other, and what was logged at each. */
function toldOf(...syncs: readonly (readonly TestServicePlan[])[]): readonly string[][] {
  const logger = new MemoryLogger();
  const contested = new ContestedAddresses({ logger });
  let previous: ProxyPlan | undefined;
  return syncs.map((services) => {
    const plan = testProxyPlan(services.map(testServicePlan));
    contested.synced("IPv4", plan, testPlanChanges(plan, previous));
    previous = plan;
    return logger.lines.splice(0).map(({ fields: { address, served, notServed, service } }) =>
      [address, served ?? service, ...(notServed === undefined ? [] : [notServed])].join(" ")
    );
  });
}

Deno.test("ContestedAddresses names who has an address that two claim and who has not, once", () => {
  const shared = { externalIps: ["203.0.113.1"] };
  const [a, b] = [{ ...shared, name: "a", createdAt: NEW }, {
    ...shared,
    name: "b",
    createdAt: OLD,
  }];
  const address = "203.0.113.1:80/TCP";
  assertEquals(toldOf([a], [a, b], [a, b], [b], [a, b], []), [
    [],
    [`${address} ns/b/TCP ns/a/TCP`],
    [],
    [`${address} ns/b/TCP`],
    [`${address} ns/b/TCP ns/a/TCP`],
    [`${address} none`],
  ]);
});

Deno.test("ContestedAddresses tells anew when another Service gets the address", () => {
  const at = (name: string, createdAt: string) => ({
    ...{ name, createdAt },
    loadBalancerVips: ["203.0.113.1"],
  });
  const [a, b, c] = [at("a", NEW), at("b", NEW), at("c", OLD)];
  assertEquals(toldOf([b, a], [b, a, c]), [
    ["203.0.113.1:80/TCP ns/a/TCP ns/b/TCP"],
    ["203.0.113.1:80/TCP ns/c/TCP ns/a/TCP, ns/b/TCP"],
  ]);
});

Deno.test("ContestedAddresses passes over what differs in port, protocol or address", () => {
  const one = { name: "a", externalIps: ["203.0.113.1"], loadBalancerVips: ["203.0.113.1"] };
  assertEquals(
    toldOf([
      one,
      { ...one, name: "b", port: 81 },
      { ...one, name: "c", protocol: "UDP" },
      { name: "d", externalIps: ["203.0.113.2"] },
      { name: "e", nodePort: 30000 },
    ]),
    [[]],
  );
});

Deno.test("ContestedAddresses keeps the families apart", () => {
  const logger = new MemoryLogger();
  const contested = new ContestedAddresses({ logger });
  const addresses = { IPv4: "203.0.113.1", IPv6: "2001:db8::1" };
  for (const name of ["a", "b"]) {
    for (const family of ["IPv4", "IPv6"] as const) {
      const service = testServicePlan({ name, externalIps: [addresses[family]] });
      const plan = testProxyPlan([service], { family });
      contested.synced(family, plan, testPlanChanges(plan));
    }
  }
  assertEquals(logger.lines.map(({ fields }) => fields.address), [
    "203.0.113.1:80/TCP",
    "[2001:db8::1]:80/TCP",
  ]);
});
