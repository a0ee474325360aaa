import { assertEquals } from "@std/assert";
import {
  BGP_SETTINGS,
  plannedRouting,
  stepTexts,
} from "../../tests/support/builders/planned_routing.ts";
import { imported, peerImports } from "../../tests/support/builders/bgp_plans.ts";
import { loadBalancer, routedNode } from "../../tests/support/builders/routed_objects.ts";
import {
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { parseCidr } from "../net/cidr.ts";
import { explainPrefix, type SeenSessions } from "./explain_routing.ts";
import type { PlannedRouting, RoutingInputs } from "./planned_routing.ts";

const ADDRESS = "198.51.100.7";

/** A Service with an address of the pool that BGP announces. */
function withService(plan: TestServicePlan = {}, inputs: Partial<RoutingInputs> = {}) {
  return plannedRouting({
    services: [loadBalancer({ name: "ns/web", addresses: [ADDRESS] })],
    plans: [testServicePlan({ loadBalancerVips: [ADDRESS], to: ["10.244.0.9:80"], ...plan })],
    ...inputs,
  });
}

function explain(planned: PlannedRouting, prefix: string, seen?: SeenSessions) {
  return explainPrefix(planned, { prefix: parseCidr(prefix), seen });
}

Deno.test("explainPrefix() names the Service, the peers of the same family and the communities", () => {
  const { headline, steps, isAnnounced } = explain(withService(), `${ADDRESS}/32`);
  assertEquals([headline, isAnnounced], ["ANNOUNCED by a to 1 peer", true]);
  assertEquals(stepTexts(steps), [
    "Sources: it belongs to",
    "- Service ns/web (load balancer address): for external peers",
    "Peers: it is for",
    "- tor_1 (192.0.2.254, AS 64600, external peer)",
    "Attributes: communities 64512:100",
    "Received: a route for it would be",
    "- from external peers: refused: 198.51.100.0/24 belongs to this cluster",
  ]);
});

Deno.test("explainPrefix() compares the plan with what the daemon sends", () => {
  const prefix = `${ADDRESS}/32`;
  const seen = (...sent: readonly string[]): SeenSessions => ({
    sessions: new Map([["tor_1", "established since 12:00"]]),
    sent: new Map([["tor_1", new Set(sent)]]),
  });
  const up = explain(withService(), prefix, seen(prefix));
  assertEquals(up.headline, "ANNOUNCED by a to 1 peer");
  assertEquals(stepTexts(up.steps, "Peers").slice(1), [
    "- tor_1 (192.0.2.254, AS 64600, external peer): sent; established since 12:00",
  ]);
  assertEquals(
    explain(withService(), prefix, seen()).headline,
    "PLANNED by a for 1 peer, but sent to none now",
  );
  const lost = explain(withService(), prefix, { sessions: new Map(), sent: new Map() });
  assertEquals(stepTexts(lost.steps, "Peers").slice(1), [
    "- tor_1 (192.0.2.254, AS 64600, external peer): NOT SENT; the BGP daemon does not have the " +
    "session",
  ]);
});

Deno.test("explainPrefix() says why a Service's address is not announced", () => {
  const withoutEndpoint = withService({ to: [] });
  assertEquals(
    explain(withoutEndpoint, `${ADDRESS}/32`).headline,
    "NOT ANNOUNCED by a: the Service has no usable endpoint",
  );
  const draining = withService({}, { isDraining: true });
  assertEquals(
    explain(draining, `${ADDRESS}/32`).headline,
    "NOT ANNOUNCED by a: the node drains",
  );
  assertEquals(
    explain(withService(), "198.51.100.8/32").headline,
    "NOT ANNOUNCED by a: no Service and no range has exactly this prefix",
  );
});

Deno.test("explainPrefix() says that a prefix has no peer, and which announced prefix contains it", () => {
  const advertise = { ...BGP_SETTINGS.advertise, podCidrs: true };
  const bgp = { ...BGP_SETTINGS, advertise };
  const pods = explain(plannedRouting({ settings: { bgp } }), "10.244.0.9/32");
  assertEquals(stepTexts(pods.steps, "Contained in"), [
    "Contained in: 10.244.0.0/24, which a announces",
  ]);
  const alone = plannedRouting({ settings: { bgp: { ...bgp, peers: [] } } });
  assertEquals(
    explain(alone, "10.244.0.0/24").headline,
    "NOT ANNOUNCED by a: it may, but has no peer that gets it",
  );
});

Deno.test("explainPrefix() explains a node without BGP, and one whose Node is unknown", () => {
  const off = plannedRouting({ hasBgp: false });
  assertEquals(
    explain(off, "10.0.0.0/8").headline,
    "NOT ANNOUNCED: a announces nothing by BGP, because BGP is disabled",
  );
  assertEquals(
    explain(plannedRouting({ nodes: [] }), "10.0.0.0/8").headline,
    "NOT ANNOUNCED: a announces nothing by BGP, because its Node is not known",
  );
});

Deno.test("explainPrefix() says what would be accepted from peers", () => {
  const imports = { ...BGP_SETTINGS.imports, external: [parseCidr("10.8.0.0/16")] };
  const nodes = ["a", "b"].map((name, index) =>
    routedNode({ name, addresses: [`192.0.2.${index + 1}`], podCidrs: [`10.244.${index}.0/24`] })
  );
  const planned = plannedRouting({
    nodes,
    settings: { bgp: { ...BGP_SETTINGS, mesh: true, imports } },
  });
  const received = (prefix: string) =>
    stepTexts(explain(planned, prefix).steps, "Received").slice(1);
  assertEquals(received("10.244.1.0/24"), [
    "- from nodes of the mesh: accepted, because 10.244.1.0/24 is",
    "- from external peers: refused: no range that is accepted from such peers contains it",
  ]);
  assertEquals(
    received("10.8.3.0/24")[1],
    "- from external peers: accepted, because 10.8.0.0/16 is",
  );
  assertEquals(received("0.0.0.0/0"), [
    "- from nodes of the mesh: refused: it is the default route",
    "- from external peers: refused: it is the default route",
  ]);
});

Deno.test("explainPrefix() says what would be accepted from a peer with imports of its own", () => {
  const [tor] = BGP_SETTINGS.peers;
  const own = peerImports({
    prefixes: [imported("10.0.0.0/8", 16, 24)],
    clusterPrefixes: [imported("192.0.2.0/24", 32, 32)],
  });
  const planned = plannedRouting({
    nodes: [routedNode({ name: "a", addresses: ["192.0.2.1"], podCidrs: ["10.244.0.0/24"] })],
    settings: { bgp: { ...BGP_SETTINGS, peers: [{ ...tor!, import: own }] } },
  });
  const received = (prefix: string) =>
    stepTexts(explain(planned, prefix).steps, "Received").slice(1);
  assertEquals(received("10.8.0.0/16"), [
    "- from peer tor_1: accepted, because its import.prefixes has 10.0.0.0/8 with lengths 16 to 24",
  ]);
  const refused = ["- from peer tor_1: refused: its import.prefixes does not have it"];
  assertEquals(received("10.8.0.0/15"), refused);
  assertEquals(received("10.8.0.0/25"), refused);
  assertEquals(received("10.244.0.0/24"), [
    "- from peer tor_1: refused: 10.244.0.0/24 belongs to this cluster",
  ]);
  assertEquals(received("192.0.2.1/32"), [
    "- from peer tor_1: accepted, because its import.clusterPrefixes has 192.0.2.0/24 with lengths " +
    "32 to 32",
  ]);
  assertEquals(received("0.0.0.0/0"), ["- from peer tor_1: refused: it is the default route"]);
  assertEquals(stepTexts(explain(planned, "2001:db8::/32").steps, "Received"), []);
});
