import { assertEquals } from "@std/assert";
import {
  testEndpoint,
  testPlanChanges,
  testProxyPlan,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import type { IpFamily } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import type { ProxyPlan } from "../proxy/proxy_plan.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { ServiceHealthTable } from "./service_health_table.ts";

const WEB = "ns/web" as ServiceKey;

/** Passes plans to a table as a sync does, and remembers the last plan of each family. */
function createTable() {
  const table = new ServiceHealthTable();
  const previous = new Map<IpFamily, ProxyPlan>();
  return {
    table,
    sync(services: readonly TestServicePlan[], family: IpFamily = "IPv4"): readonly string[] {
      const plan = testProxyPlan(services.map(testServicePlan), { family });
      const changes = testPlanChanges(plan, previous.get(family));
      previous.set(family, plan);
      return [...table.update(family, plan, changes)];
    },
    counts: () => Object.fromEntries(table.get(WEB)?.localEndpoints ?? []),
  };
}

function local(...texts: readonly string[]) {
  return texts.map((text) => testEndpoint(text, { isLocal: true }));
}

const checked = { healthCheckNodePort: parsePort(30111) };

Deno.test("ServiceHealthTable counts the distinct addresses of ready local endpoints over all ports", () => {
  const { sync, counts } = createTable();
  sync([
    { ...checked, portName: "http", endpoints: local("10.0.0.1:80", "10.0.0.2:80", "10.0.0.2:81") },
    { ...checked, portName: "https", endpoints: local("10.0.0.2:443", "10.0.0.3:443") },
  ]);
  assertEquals(counts(), { IPv4: 3 });
});

Deno.test("ServiceHealthTable counts neither remote nor unready nor terminating endpoints", () => {
  const { sync, counts } = createTable();
  sync([{
    ...checked,
    endpoints: [
      testEndpoint("10.0.0.1:80"),
      testEndpoint("10.0.0.2:80", { isLocal: true, ready: false }),
      testEndpoint("10.0.0.3:80", { isLocal: true, ready: false, terminating: true }),
      testEndpoint("10.0.0.4:80", { isLocal: true }),
    ],
  }]);
  assertEquals(counts(), { IPv4: 1 });
});

Deno.test("ServiceHealthTable keeps the families of a Service apart, and its port together", () => {
  const { table, sync, counts } = createTable();
  sync([{ ...checked, endpoints: local("10.0.0.1:80") }]);
  sync([{ ...checked, endpoints: local("[2001:db8::1]:80", "[2001:db8::2]:80") }], "IPv6");
  assertEquals(counts(), { IPv4: 1, IPv6: 2 });
  sync([], "IPv4");
  assertEquals(counts(), { IPv6: 2 });
  sync([], "IPv6");
  assertEquals(table.get(WEB), undefined);
});

Deno.test("ServiceHealthTable names only changed Services", () => {
  const { sync } = createTable();
  const other = { name: "other" };
  assertEquals(sync([{ ...checked }, other]), [WEB]);
  assertEquals(sync([{ ...checked, endpoints: local("10.0.0.1:80") }, other]), [WEB]);
  assertEquals(sync([other]), [WEB]);
  assertEquals(sync([other, { name: "third" }]), []);
});

Deno.test("ServiceHealthTable follows a changed port and forgets a Service that lost it", () => {
  const { table, sync } = createTable();
  sync([checked]);
  sync([{ healthCheckNodePort: parsePort(30112) }]);
  assertEquals(table.get(WEB)?.port, parsePort(30112));
  assertEquals(sync([{}]), [WEB]);
  assertEquals([...table.keys()], []);
});

Deno.test("ServiceHealthTable recounts when one of several ports goes", () => {
  const { sync, counts } = createTable();
  const http = { ...checked, portName: "http", endpoints: local("10.0.0.1:80") };
  const https = { ...checked, portName: "https", endpoints: local("10.0.0.2:443") };
  sync([http, https]);
  sync([http]);
  assertEquals(counts(), { IPv4: 1 });
});
