import { assertEquals } from "@std/assert";
import { bgpPeer, imported, peerImports } from "../../../tests/support/builders/bgp_plans.ts";
import { ROUTING_SETTINGS } from "../../../tests/support/builders/planned_routing.ts";
import { loadBalancer } from "../../../tests/support/builders/routed_objects.ts";
import { parseCidr } from "../../net/cidr.ts";
import type { BgpPlan } from "../../routing/bgp_plan.ts";
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import { routingFacts, type ShownRouting } from "./routing_status.ts";

const PLAN: BgpPlan = {
  routerId: "192.0.2.1",
  localAs: 64_512,
  peers: ROUTING_SETTINGS.bgp!.peers.map((peer) => ({ ...peer, role: "external" })),
  announced: ["198.51.100.7/32", "198.51.100.8/32"].map((prefix) => ({
    prefix: parseCidr(prefix),
    to: ["external"],
    kind: "load-balancer",
    communities: [],
    largeCommunities: [],
  })),
  imports: { ...ROUTING_SETTINGS.bgp!.imports, mesh: [], refused: [] },
};

function facts(shown: Partial<ShownRouting>): readonly string[] {
  return routingFacts({
    settings: ROUTING_SETTINGS,
    services: [],
    leases: undefined,
    refused: [],
    layer2Problems: [],
    owned: [],
    ...shown,
  }).map(({ name, text }) => `${name}: ${text}`);
}

Deno.test("routingFacts() counts the addresses of pools, each once", () => {
  const services = [
    loadBalancer({ name: "a", addresses: ["203.0.113.7"] }),
    loadBalancer({ name: "b", addresses: ["203.0.113.7", "10.1.1.1"] }),
  ];
  assertEquals(facts({ services }), [
    "Pool: routed: 0 of 256 IPv4 in use, announced by bgp",
    "Pool: office: 1 of 256 IPv4 in use, announced by layer2",
  ]);
});

Deno.test("routingFacts() names Services without the address that they ask for, not all of many", () => {
  const refused = Array.from({ length: 22 }, (_, index) => ({
    key: `ns/s${index}` as ServiceKey,
    reasons: ["no pool", "taken"],
  }));
  const found = facts({ refused }).slice(2);
  assertEquals([found.length, found[0], found.at(-1)], [
    21,
    "Refused: ns/s0: no pool; taken",
    ": and 2 more",
  ]);
});

Deno.test("routingFacts() says of each session what it sends and receives, and which is missing", () => {
  const session = {
    ...{ peer: "tor_1", state: "Established", description: "established since 12:00" },
    ...{ imported: 0, exported: 1, refusedUpdates: 3 },
  };
  assertEquals(facts({ bgp: { plan: PLAN, sessions: [session] } }).slice(2), [
    "Announced: 2 prefixes: 2 load-balancer",
    "Peer: tor_1 (192.0.2.254, AS 64600): established since 12:00; 1 prefix out, 0 in, 3 updates " +
    "refused",
    "Peer: tor_2: BIRD has no session yet",
  ]);
  assertEquals(
    facts({ bgp: { plan: PLAN, sessions: "BIRD does not run" } }).at(-1),
    [
      "Sessions: unknown: BIRD does not run",
    ][0],
  );
});

Deno.test("routingFacts() lists what a peer with imports of its own may send", () => {
  const [session] = [{
    ...{ peer: "tor_1", state: "Established", description: "established" },
    ...{ imported: 0, exported: 0, refusedUpdates: 0 },
  }];
  const peerFact = (own: Parameters<typeof peerImports>[0]) => {
    const peers = [bgpPeer("tor_1", "192.0.2.254", { import: peerImports(own) })];
    return facts({ bgp: { plan: { ...PLAN, peers }, sessions: [session!] } }).at(-1);
  };
  const start = "Peer: tor_1 (192.0.2.254, AS 64513): established; 0 prefixes out, 0 in; accepts";
  assertEquals(peerFact({}), `${start} nothing`);
  const prefixes = [imported("10.0.0.0/8", 8, 32), imported("10.0.0.0/8", 8, 24)];
  assertEquals(
    peerFact({ prefixes, defaultRoute: true }),
    `${start} 10.0.0.0/8, 10.0.0.0/8 with lengths 8 to 24, a default route`,
  );
  const many = Array.from({ length: 7 }, () => prefixes[0]!);
  assertEquals(peerFact({ prefixes: many })?.endsWith("10.0.0.0/8 and 2 more"), true);
});

Deno.test("routingFacts() names nodes that cannot answer, and nodes with other pools", () => {
  const layer2Problems = [{ node: "b", text: "its pool 'office' has other addresses" }];
  assertEquals(facts({ layer2Problems }).slice(2), [
    "Layer 2: node b: its pool 'office' has other addresses",
  ]);
});
