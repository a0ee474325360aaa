import { assertEquals } from "@std/assert";
import { bgpPeer, imported, peerImports } from "../../../tests/support/builders/bgp_plans.ts";
import { ROUTING_SETTINGS } from "../../../tests/support/builders/planned_routing.ts";
import { parseCidr } from "../../net/cidr.ts";
import type { LoopStatus } from "../../engine/controller.ts";
import type { BgpPlan } from "../../routing/bgp_plan.ts";
import type { ServiceKey } from "../../proxy/service_port_name.ts";
import { type ReportedRouting, routingStatus } from "./routing_status.ts";
import type { BgpSessionView } from "./routing_backends.ts";

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

async function facts(
  shown: Partial<ReportedRouting> & { readonly refused?: ReportedRouting["assigner"]["refused"] },
): Promise<readonly string[]> {
  const { facts } = await routingStatus({
    ...{ settings: ROUTING_SETTINGS, services: new Set(), leases: undefined, layer2: undefined },
    ...{ bgp: undefined, pods: undefined, problems: new Map() },
    assigner: { problem: undefined, refused: shown.refused },
    ...shown,
  }, { brief: false });
  return facts.map(({ name, text }) => `${name}: ${text}`);
}

function bgpFacts(plan: BgpPlan, ...sessions: BgpSessionView[]): Promise<readonly string[]> {
  const loop = { status: () => ({}) as LoopStatus };
  return facts({ bgp: { plan, loop, backend: { sessions: () => Promise.resolve(sessions) } } });
}

Deno.test("routingStatus() names Services without the address that they ask for, not all of many", async () => {
  const refused = Array.from({ length: 22 }, (_, index) => ({
    key: `ns/s${index}` as ServiceKey,
    reasons: ["no pool", "taken"],
  }));
  const found = (await facts({ refused })).slice(2);
  assertEquals([found.length, found[0], found.at(-1)], [
    21,
    "Refused: ns/s0: no pool; taken",
    ": and 2 more",
  ]);
});

Deno.test("routingStatus() says of each session what it sends and receives, and which is missing", async () => {
  const session = {
    ...{ peer: "tor_1", state: "Established", description: "established since 12:00" },
    ...{ imported: 0, exported: 1, refusedUpdates: 3 },
  };
  assertEquals((await bgpFacts(PLAN, session)).slice(2), [
    "Announced: 2 prefixes: 2 load-balancer",
    "Peer: tor_1 (192.0.2.254, AS 64600): established since 12:00; 1 prefix out, 0 in, 3 updates " +
    "refused",
    "Peer: tor_2: BIRD has no session yet",
  ]);
  const backend = { sessions: () => Promise.reject(new Error("BIRD does not run")) };
  const loop = { status: () => ({}) as LoopStatus };
  const found = await facts({ bgp: { plan: PLAN, loop, backend } });
  assertEquals(found.at(-1), "Sessions: unknown: BIRD does not run");
});

Deno.test("routingStatus() lists what a peer with imports of its own may send", async () => {
  const [session] = [{
    ...{ peer: "tor_1", state: "Established", description: "established" },
    ...{ imported: 0, exported: 0, refusedUpdates: 0 },
  }];
  const peerFact = async (own: Parameters<typeof peerImports>[0]) => {
    const peers = [bgpPeer("tor_1", "192.0.2.254", { import: peerImports(own) })];
    return (await bgpFacts({ ...PLAN, peers }, session!)).at(-1);
  };
  const start = "Peer: tor_1 (192.0.2.254, AS 64513): established; 0 prefixes out, 0 in; accepts";
  assertEquals(await peerFact({}), `${start} nothing`);
  const prefixes = [imported("10.0.0.0/8", 8, 32), imported("10.0.0.0/8", 8, 24)];
  assertEquals(
    await peerFact({ prefixes, defaultRoute: true }),
    `${start} 10.0.0.0/8, 10.0.0.0/8 with lengths 8 to 24, a default route`,
  );
  const many = Array.from({ length: 7 }, () => prefixes[0]!);
  assertEquals((await peerFact({ prefixes: many }))?.endsWith("10.0.0.0/8 and 2 more"), true);
});
