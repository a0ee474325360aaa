import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import type { ServicePortName } from "./service_port_name.ts";
import { ServiceTrafficTable } from "./service_traffic.ts";

function named(name: string, port = ""): ServicePortName {
  return { namespace: "demo", name, port, protocol: "TCP" };
}

/** `family name:port opened` of each row. */
function rowsOf(table: ServiceTrafficTable): readonly string[] {
  return [...table.rows()].map(({ family, name, traffic }) =>
    `${family} ${name ? `${name.name}:${name.port}` : "other"} ${traffic.opened}`
  );
}

Deno.test("ServiceTrafficTable counts further Services together when it is full", () => {
  const table = new ServiceTrafficTable({ maxServices: 1 });
  const traffic = table.of("IPv4");
  traffic.enter(named("first")).opened++;
  const second = traffic.enter(named("second"));
  assertStrictEquals(traffic.enter(named("third")), second);
  second.opened += 5;
  // Another port and another family of a Service that has its place.
  traffic.enter(named("first", "admin")).opened++;
  table.of("IPv6").enter(named("first")).opened++;
  assertEquals(rowsOf(table), [
    "IPv4 first: 1",
    "IPv4 first:admin 1",
    "IPv6 first: 1",
    "IPv4 other 5",
  ]);
  assertEquals(traffic.get(named("second")), undefined);
});

Deno.test("ServiceTrafficTable is bounded for a Service of many ports, too", () => {
  const table = new ServiceTrafficTable({ maxServicePorts: 3 });
  for (let port = 0; port < 10; port++) table.of("IPv4").enter(named("web", `p${port}`)).opened++;
  assertEquals(rowsOf(table), ["IPv4 web:p0 1", "IPv4 web:p1 1", "IPv4 web:p2 1", "IPv4 other 7"]);
});

Deno.test("ServiceTrafficTable forgets a removed Service, and has room for another", () => {
  const table = new ServiceTrafficTable({ maxServices: 1 });
  const traffic = table.of("IPv4");
  const first = traffic.enter(named("first"));
  table.of("IPv6").enter(named("first"));
  traffic.leave(named("first"));
  traffic.leave(named("first"));
  traffic.enter(named("second")).opened++;
  assertEquals(rowsOf(table), ["IPv6 first: 0", "IPv4 other 1"]);
  table.of("IPv6").leave(named("first"));
  traffic.enter(named("third")).opened++;
  assertEquals(rowsOf(table), ["IPv4 third: 1", "IPv4 other 1"]);
  assert(traffic.enter(named("first")) !== first, "a Service of the same name starts at zero");
});
