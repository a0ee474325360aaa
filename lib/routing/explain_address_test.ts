import { readMemberReport } from "./layer2_member.ts";
import { assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { plannedRouting, stepTexts } from "../../tests/support/builders/planned_routing.ts";
import { loadBalancer } from "../../tests/support/builders/routed_objects.ts";
import {
  testEndpoint,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { explainAddress, type SeenRouting } from "./explain_routing.ts";
import type { PlannedRouting, RoutingInputs } from "./planned_routing.ts";

const ADDRESS = "203.0.113.7";

/** A Service with an address of the pool that layer 2 announces. */
function withService(plan: TestServicePlan = {}, inputs: Partial<RoutingInputs> = {}) {
  return plannedRouting({
    services: [loadBalancer({ name: "ns/web", addresses: [ADDRESS] })],
    plans: [testServicePlan({ loadBalancerVips: [ADDRESS], to: ["10.244.0.9:80"], ...plan })],
    ...inputs,
  });
}

function explain(planned: PlannedRouting, address = ADDRESS, seen: SeenRouting = {}) {
  return explainAddress(planned, { address: parseIpAddress(address), seen });
}

Deno.test("explainAddress() names the pool, the Service, the owner and the other candidates", () => {
  const { headline, steps, layer2, pool } = explain(withService());
  const owner = layer2!.owner!;
  assertEquals([headline, pool], [`REACHABLE: ${owner} answers for ${ADDRESS}`, "office"]);
  assertEquals(stepTexts(steps, "Pool", "Services", "Layer 2"), [
    "Pool: 'office', announced by layer2",
    "Services: it belongs to",
    "- ns/web",
    `Layer 2: ${owner} answers for it: it is the highest score of 3 candidates`,
    ...["a", "b", "c"].map((name) =>
      name === owner ? `- ${name}: owns it` : `- ${name}: may own it, with a lower score`
    ),
  ]);
});

Deno.test("explainAddress() says why nodes cannot own an address", () => {
  const endpoints = [testEndpoint("10.244.1.9:80", { nodeName: "b" })];
  const local = withService({ externalTrafficPolicy: "Local", endpoints }, {
    live: new Set(["a", "b"]),
  });
  const { headline, steps } = explain(local);
  assertEquals(headline, `REACHABLE: b answers for ${ADDRESS}`);
  assertEquals(stepTexts(steps, "Layer 2"), [
    "Layer 2: b answers for it: it is the only candidate",
    "- a: cannot: the Node has no ready endpoint, which policy Local requires",
    "- b: owns it",
    "- c: cannot: kube-relay does not renew its Lease there",
  ]);
  const reports = new Map(
    [[], [{ network: "203.0.113.0/24", device: "eth1", obstacle: "no-carrier" }]].map(
      (links, index) => ["ab"[index]!, readMemberReport({ links })!],
    ),
  );
  assertEquals(stepTexts(explain(withService({}, { reports })).steps, "Layer 2"), [
    "Layer 2: c answers for it: it is the only candidate",
    "- a: cannot: no interface of it has a network with the address",
    "- b: cannot: its interface eth1 has no carrier",
    "- c: owns it",
  ]);
  const withoutOwner = explain(withService({}, { live: new Set() }));
  assertEquals(withoutOwner.headline, `NOT REACHABLE: no node can answer for ${ADDRESS}`);
});

Deno.test("explainAddress() says that Leases are not known to it", () => {
  const offline = withService({}, { live: undefined });
  const [text] = stepTexts(explain(offline).steps, "Layer 2");
  assertStringIncludes(text!, "Leases are not known here");
});

Deno.test("explainAddress() compares the owner with the interfaces of this node", () => {
  const mine = withService({}, { live: new Set(["a"]) });
  const held = (device?: string): SeenRouting => ({
    held: new Map(device === undefined ? [] : [[parseIpAddress(ADDRESS), device]]),
  });
  const last = (planned: PlannedRouting, seen: SeenRouting) =>
    stepTexts(explain(planned, ADDRESS, seen).steps, "Layer 2").at(-1);
  assertEquals(last(mine, held("eth0")), "- this node has it on eth0");
  assertMatch(last(mine, held())!, /^- BUT this node does not have it on any interface/);
  const others = withService({}, { live: new Set(["b"]) });
  assertEquals(last(others, held("eth0")), "- BUT this node still has it on eth0");
});

Deno.test("explainAddress() explains free, foreign, unknown addresses and those of nodes", () => {
  const planned = plannedRouting({
    services: [loadBalancer({ name: "ns/other", addresses: ["10.9.9.9"] })],
  });
  assertEquals(explain(planned, "203.0.113.8").headline, "FREE: no Service has 203.0.113.8");
  assertEquals(
    explain(planned, "192.0.2.2").headline,
    "OF A NODE: 192.0.2.2 is the address of node b",
  );
  assertEquals(
    explain(planned, "10.1.1.1").headline,
    "UNKNOWN: no Service and no pool has 10.1.1.1",
  );
  const foreign = explain(planned, "10.9.9.9");
  assertEquals(foreign.headline, "NOT ANNOUNCED by a");
  assertMatch(stepTexts(foreign.steps, "Services").at(-1)!, /^- ns\/other: BUT The status has/);
});

Deno.test("explainAddress() answers with BGP for an address of a pool with bgp", () => {
  const address = "198.51.100.7";
  const planned = plannedRouting({
    services: [loadBalancer({ name: "ns/web", addresses: [address] })],
    plans: [testServicePlan({ loadBalancerVips: [address], to: ["10.244.0.9:80"] })],
  });
  const { headline, steps } = explain(planned, address);
  assertEquals(headline, "ANNOUNCED by a to 1 peer");
  assertEquals(stepTexts(steps, "Layer 2", "BGP"), [
    "Layer 2: no node answers for it: pool 'routed' is not announced by layer2",
    "BGP: ANNOUNCED by a to 1 peer",
  ]);
});
