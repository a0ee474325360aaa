/** Addresses, prefixes and changes of plans in words. */
import { assertEquals, assertMatch } from "@std/assert";
import { imported, peerImports } from "../../tests/support/builders/bgp_plans.ts";
import {
  BGP_SETTINGS,
  plannedRouting,
  stepTexts,
} from "../../tests/support/builders/planned_routing.ts";
import { loadBalancer, routedNode } from "../../tests/support/builders/routed_objects.ts";
import {
  testEndpoint,
  type TestServicePlan,
  testServicePlan,
} from "../../tests/support/builders/service_plans.ts";
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { comparePlannedRouting } from "./compare_planned_routing.ts";
import {
  explainAddress,
  explainPrefix,
  explainService,
  type SeenRouting,
} from "./explain_routing.ts";
import { readMemberReport } from "./layer2_member.ts";
import type { PlannedRouting, RoutingInputs } from "./planned_routing.ts";

/** An address of the pool that layer 2 announces, and one of that of BGP. */
const [OFFICE, ROUTED] = ["203.0.113.7", "198.51.100.7"] as const;

/** The inputs with a Service that has an address. */
function withAddress(address: string, plan: TestServicePlan = {}) {
  return {
    services: [loadBalancer({ name: "ns/web", addresses: [address] })],
    plans: [testServicePlan({ loadBalancerVips: [address], to: ["10.244.0.9:80"], ...plan })],
  };
}

function office(inputs: Partial<RoutingInputs> = {}, plan: TestServicePlan = {}): PlannedRouting {
  return plannedRouting({ ...withAddress(OFFICE, plan), ...inputs });
}

function explain(planned: PlannedRouting, address: string = OFFICE, seen: SeenRouting = {}) {
  const { headline, steps } = explainAddress(planned, { address: parseIpAddress(address), seen });
  return { headline, texts: (...topics: readonly string[]) => stepTexts(steps, ...topics) };
}

function prefix(planned: PlannedRouting, text = `${ROUTED}/32`, seen?: SeenRouting["bgp"]) {
  const { headline, steps } = explainPrefix(planned, { prefix: parseCidr(text), seen });
  return { headline, texts: (...topics: readonly string[]) => stepTexts(steps, ...topics) };
}

Deno.test("explainAddress() names the pool, the Service, the owner, and why other nodes are not", () => {
  const found = explain(office());
  const [, owner = ""] = /^REACHABLE: (\w) answers for 203.0.113.7$/.exec(found.headline) ?? [];
  assertEquals(found.texts("Pool", "Services", "Layer 2"), [
    "Pool: 'office', announced by layer2",
    "Services: it belongs to",
    "- ns/web",
    `Layer 2: ${owner} answers for it: it is the highest score of 3 candidates`,
    ...["a", "b", "c"].map((name) =>
      name === owner ? `- ${name}: owns it` : `- ${name}: may own it, with a lower score`
    ),
  ]);
  const endpoints = [testEndpoint("10.244.1.9:80", { nodeName: "b" })];
  const local = office({ live: new Set(["a", "b"]) }, {
    externalTrafficPolicy: "Local",
    endpoints,
  });
  assertEquals(explain(local).texts("Layer 2"), [
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
  assertEquals(explain(office({ reports })).texts("Layer 2").slice(1), [
    "- a: cannot: no interface of it has a network with the address",
    "- b: cannot: its interface eth1 has no carrier",
    "- c: owns it",
  ]);
  const [offline] = explain(office({ live: undefined })).texts("Layer 2");
  assertMatch(offline!, /Leases are not known here/);
});

Deno.test("explainAddress() answers for free, foreign and unknown addresses, and by BGP", () => {
  const planned = plannedRouting({
    services: [loadBalancer({ name: "ns/other", addresses: ["10.9.9.9"] })],
  });
  const headlines = ["203.0.113.8", "192.0.2.2", "10.1.1.1", "10.9.9.9"].map((each) =>
    explain(planned, each).headline
  );
  assertEquals(headlines, [
    "FREE: no Service has 203.0.113.8",
    "OF A NODE: 192.0.2.2 is the address of node b",
    "UNKNOWN: no Service and no pool has 10.1.1.1",
    "NOT ANNOUNCED by a",
  ]);
  const [, foreign] = explain(planned, "10.9.9.9").texts("Services");
  assertMatch(foreign!, /^- ns\/other: BUT The status has/);
  assertEquals(
    explain(office({ live: new Set() })).headline,
    `NOT REACHABLE: no node can answer for ${OFFICE}`,
  );
  const routed = explain(plannedRouting(withAddress(ROUTED)), ROUTED);
  assertEquals([routed.headline, ...routed.texts("Layer 2", "BGP")], [
    "ANNOUNCED by a to 1 peer",
    "Layer 2: no node answers for it: pool 'routed' is not announced by layer2",
    "BGP: ANNOUNCED by a to 1 peer",
  ]);
});

Deno.test("explainService() says why a Service has its addresses, or none", () => {
  const foreign = { loadBalancerClass: "example.com/x" };
  const pool = { "kube-relay.io/load-balancer-pool": "none" };
  const planned = plannedRouting({
    services: [
      loadBalancer({ name: "ns/web", addresses: [OFFICE], annotations: pool }),
      loadBalancer({ name: "ns/theirs", spec: foreign }),
      loadBalancer({ name: "ns/held", spec: foreign, addresses: ["203.0.113.9"] }),
      loadBalancer({ name: "ns/new" }),
      loadBalancer({ name: "ns/refused", annotations: pool }),
      loadBalancer({ name: "ns/inner", spec: { type: "ClusterIP" } }),
    ],
  });
  const texts = (name: string) => {
    const service = `ns/${name}` as ServiceKey;
    const { headline, steps } = explainService(planned, { service });
    return [headline, ...stepTexts(steps)];
  };
  const refused = "The Service may not use pool 'none', or the pool has no IPv4";
  const theirs = "its class is 'example.com/x', and kube-relay gives addresses to class " +
    "kube-relay.io/load-balancer, and without a class";
  assertEquals(
    ["web", "theirs", "held", "new", "refused", "inner", "gone"].map((name) => texts(name)),
    [
      [
        `HAS ${OFFICE}`,
        `But: ${refused}`,
        `${OFFICE}: NOT ANNOUNCED by a`,
      ],
      [`NO ADDRESS: ${theirs}`],
      ["HAS 203.0.113.9", `But: ${theirs}`, "203.0.113.9: NOT ANNOUNCED by a"],
      ["WAITS: it gets 203.0.113.0, which its status does not have yet"],
      [`NO ADDRESS: ${refused}`],
      ["NO ADDRESS: its type is not LoadBalancer"],
      ["UNKNOWN: no Service is called ns/gone"],
    ],
  );
});

Deno.test("explainPrefix() names the Service, the peers of the same family, and what they are sent", () => {
  const planned = plannedRouting(withAddress(ROUTED));
  const { headline, texts } = prefix(planned);
  assertEquals([headline, ...texts()], [
    "ANNOUNCED by a to 1 peer",
    "Sources: it belongs to",
    "- Service ns/web (load balancer address): for external peers",
    "Peers: it is for",
    "- tor_1 (192.0.2.254, AS 64600, external peer)",
    "Attributes: communities 64512:100",
    "Received: a route for it would be",
    "- from external peers: refused: 198.51.100.0/24 belongs to this cluster",
  ]);
  const sessions = new Map([["tor_1", "established since 12:00"]]);
  const seen = (...sent: readonly string[]) =>
    prefix(planned, undefined, { sessions, sent: new Map([["tor_1", new Set(sent)]]) });
  const up = seen(`${ROUTED}/32`);
  assertEquals([up.headline, up.texts("Peers")[1]], [
    "ANNOUNCED by a to 1 peer",
    "- tor_1 (192.0.2.254, AS 64600, external peer): sent; established since 12:00",
  ]);
  assertEquals(seen().headline, "PLANNED by a for 1 peer, but sent to none now");
  const lost = prefix(planned, undefined, { sessions: new Map(), sent: new Map() });
  assertMatch(lost.texts("Peers")[1]!, /: NOT SENT; the BGP daemon does not have the session$/);
});

Deno.test("explainPrefix() says why a prefix is not announced, and what contains it", () => {
  const reason = (inputs: Parameters<typeof plannedRouting>[0], text?: string) =>
    prefix(plannedRouting(inputs), text).headline.replace("NOT ANNOUNCED", "NOT");
  const service = withAddress(ROUTED);
  assertEquals(
    reason(withAddress(ROUTED, { to: [] })),
    "NOT by a: the Service has no usable endpoint",
  );
  assertEquals(reason({ ...service, isDraining: true }), "NOT by a: the node drains");
  assertEquals(
    reason(service, "198.51.100.8/32"),
    "NOT by a: no Service and no range has exactly this prefix",
  );
  const bgp = { ...BGP_SETTINGS, advertise: { ...BGP_SETTINGS.advertise, podCidrs: true } };
  assertEquals(
    reason({ settings: { bgp: { ...bgp, peers: [] } } }, "10.244.0.0/24"),
    "NOT by a: it may, but has no peer that gets it",
  );
  const nothing = "NOT: a announces nothing by BGP, because";
  assertEquals(reason({ hasBgp: false }), `${nothing} BGP is disabled`);
  assertEquals(reason({ nodes: [] }), `${nothing} its Node is not known`);
  const pods = prefix(plannedRouting({ settings: { bgp } }), "10.244.0.9/32");
  assertEquals(pods.texts("Contained in"), [
    "Contained in: 10.244.0.0/24, which a announces",
  ]);
});

Deno.test("explainPrefix() says what would be accepted from peers", () => {
  const imports = { ...BGP_SETTINGS.imports, external: [parseCidr("10.8.0.0/16")] };
  const mesh = plannedRouting({ settings: { bgp: { ...BGP_SETTINGS, mesh: true, imports } } });
  const received = (planned: PlannedRouting, text: string) =>
    prefix(planned, text).texts("Received").slice(1);
  assertEquals(received(mesh, "10.244.1.0/24"), [
    "- from nodes of the mesh: accepted, because 10.244.1.0/24 is",
    "- from external peers: refused: no range that is accepted from such peers contains it",
  ]);
  assertEquals(
    received(mesh, "10.8.3.0/24")[1],
    "- from external peers: accepted, because 10.8.0.0/16 is",
  );
  assertEquals(received(mesh, "0.0.0.0/0"), [
    "- from nodes of the mesh: refused: it is the default route",
    "- from external peers: refused: it is the default route",
  ]);
  const own = peerImports({
    prefixes: [imported("10.0.0.0/8", 16, 24)],
    clusterPrefixes: [imported("192.0.2.0/24", 32, 32)],
  });
  const [tor] = BGP_SETTINGS.peers;
  const planned = plannedRouting({
    nodes: [routedNode({ name: "a", addresses: ["192.0.2.1"], podCidrs: ["10.244.0.0/24"] })],
    settings: { bgp: { ...BGP_SETTINGS, peers: [{ ...tor!, import: own }] } },
  });
  const ofPeer: readonly (readonly [prefix: string, words: string])[] = [
    ["10.8.0.0/16", "accepted, because its import.prefixes has 10.0.0.0/8 with lengths 16 to 24"],
    ["10.8.0.0/15", "refused: its import.prefixes does not have it"],
    ["10.8.0.0/25", "refused: its import.prefixes does not have it"],
    ["10.244.0.0/24", "refused: 10.244.0.0/24 belongs to this cluster"],
    [
      "192.0.2.1/32",
      "accepted, because its import.clusterPrefixes has 192.0.2.0/24 with lengths 32 to 32",
    ],
    ["0.0.0.0/0", "refused: it is the default route"],
  ];
  for (const [text, words] of ofPeer) {
    assertEquals(received(planned, text), [`- from peer tor_1: ${words}`]);
  }
  assertEquals(received(planned, "2001:db8::/32"), []);
});

Deno.test("comparePlannedRouting() lists addresses, owners, announcements and sessions that change", () => {
  const changes = (...plans: readonly [PlannedRouting, PlannedRouting]) =>
    comparePlannedRouting(...plans).map((change) => {
      const { object, name, before = "none", after = "none", reason } = change;
      return `${object} ${name}: ${before} -> ${after}${
        reason === undefined ? "" : ` (${reason})`
      }`;
    });
  const routed = plannedRouting(withAddress(ROUTED));
  const announcement = "load-balancer to external, 64512:100";
  assertEquals(changes(routed, routed), []);
  assertEquals(changes(plannedRouting(), routed), [
    "address ns/web: none -> 198.51.100.7",
    `announcement 198.51.100.7/32: none -> ${announcement}`,
  ]);
  assertEquals(changes(routed, plannedRouting(withAddress(ROUTED, { to: [] }))), [
    `announcement 198.51.100.7/32: ${announcement} -> none (the Service has no usable endpoint)`,
  ]);
  const annotations = { "kube-relay.io/load-balancer-pool": "rare" };
  const vain = plannedRouting({ services: [loadBalancer({ name: "ns/web", annotations })] });
  assertMatch(changes(plannedRouting(), vain).join("\n"), /^address ns\/web: none -> refused: .*$/);
  const ofNode = (...live: readonly string[]) => office({ live: new Set(live) });
  assertEquals(changes(ofNode("a"), ofNode("b")), ["owner 203.0.113.7: a -> b"]);
  assertEquals(changes(ofNode("a"), ofNode()), ["owner 203.0.113.7: a -> no node"]);
  const mesh = (nodes: Readonly<Record<string, string>>) =>
    plannedRouting({
      settings: { bgp: { ...BGP_SETTINGS, mesh: true } },
      nodes: Object.entries({ a: "192.0.2.1", ...nodes }).map(([name, address]) =>
        routedNode({ name, addresses: [address] })
      ),
    });
  const text = (address: string) => `AS 64512 at ${address} port 179 (mesh)`;
  assertEquals(
    changes(mesh({ b: "192.0.2.2", c: "192.0.2.3" }), mesh({ b: "192.0.2.22", d: "192.0.2.4" })),
    [
      `peer node_b_v4: ${text("192.0.2.2")} -> ${text("192.0.2.22")}`,
      `peer node_c_v4: ${text("192.0.2.3")} -> none`,
      `peer node_d_v4: none -> ${text("192.0.2.4")}`,
    ],
  );
});
