import { assertEquals } from "@std/assert";
import { BGP_SETTINGS, plannedRouting } from "../../tests/support/builders/planned_routing.ts";
import { loadBalancer, routedNode } from "../../tests/support/builders/routed_objects.ts";
import { testServicePlan } from "../../tests/support/builders/service_plans.ts";
import { comparePlannedRouting } from "./compare_planned_routing.ts";
import type { RoutingInputs } from "./planned_routing.ts";

/** The changes between two clusters, one a line. */
function changes(before: Partial<RoutingInputs>, after: Partial<RoutingInputs>): readonly string[] {
  return comparePlannedRouting(plannedRouting(before), plannedRouting(after)).map((change) => {
    const { object, name, before: was = "none", after: is = "none", reason } = change;
    return `${object} ${name}: ${was} -> ${is}${reason === undefined ? "" : ` (${reason})`}`;
  });
}

/** A Service with one address. */
function withAddress(address: string, to: readonly string[] = ["10.244.0.9:80"]) {
  return {
    services: [loadBalancer({ name: "ns/web", addresses: [address] })],
    plans: [testServicePlan({ loadBalancerVips: [address], to })],
  };
}

Deno.test("comparePlannedRouting() of equal plans is empty", () => {
  assertEquals(changes(withAddress("198.51.100.7"), withAddress("198.51.100.7")), []);
});

Deno.test("comparePlannedRouting() lists an address, its announcement, and why one is withdrawn", () => {
  const routed = withAddress("198.51.100.7");
  assertEquals(changes({}, routed), [
    "address ns/web: none -> 198.51.100.7",
    "announcement 198.51.100.7/32: none -> load-balancer to external, 64512:100",
  ]);
  assertEquals(changes(routed, withAddress("198.51.100.7", [])), [
    "announcement 198.51.100.7/32: load-balancer to external, 64512:100 -> none (the Service has no " +
    "usable endpoint)",
  ]);
});

Deno.test("comparePlannedRouting() lists a Service that asks in vain", () => {
  const annotations = { "kube-relay.io/load-balancer-pool": "rare" };
  const [line, ...others] = changes({}, {
    services: [loadBalancer({ name: "ns/web", annotations })],
  });
  assertEquals(others, []);
  assertEquals(line?.startsWith("address ns/web: none -> refused: "), true, line);
});

Deno.test("comparePlannedRouting() lists another node that answers for an address", () => {
  const office = withAddress("203.0.113.7");
  const [line, ...others] = changes(
    { ...office, live: new Set(["a"]) },
    { ...office, live: new Set(["b"]) },
  );
  assertEquals([line, others], ["owner 203.0.113.7: a -> b", []]);
  assertEquals(changes({ ...office, live: new Set(["a"]) }, { ...office, live: new Set() }), [
    "owner 203.0.113.7: a -> no node",
  ]);
});

Deno.test("comparePlannedRouting() lists sessions that begin, change and end", () => {
  const mesh = (...nodes: readonly (readonly [name: string, address: string])[]) =>
    plannedRouting({
      settings: { bgp: { ...BGP_SETTINGS, mesh: true } },
      networks: [],
      nodes: [["a", "192.0.2.1"] as const, ...nodes].map(([name, address]) =>
        routedNode({ name, addresses: [address] })
      ),
    });
  const found = comparePlannedRouting(
    mesh(["b", "192.0.2.2"], ["c", "192.0.2.3"]),
    mesh(["b", "192.0.2.22"], ["d", "192.0.2.4"]),
  );
  const text = (address: string) => `AS 64512 at ${address} port 179 (mesh)`;
  assertEquals(found, [
    { object: "peer", name: "node_b_v4", before: text("192.0.2.2"), after: text("192.0.2.22") },
    { object: "peer", name: "node_c_v4", before: text("192.0.2.3") },
    { object: "peer", name: "node_d_v4", after: text("192.0.2.4") },
  ]);
});
