/** What the driver of BIRD accepts from peers. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import type { BgpPlan } from "../../lib/routing/bgp_plan.ts";
import { announced, bgpPeer, bgpPlan, cidrs, NO_IMPORTS } from "../support/builders/bgp_plans.ts";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import { frrConfiguration } from "../support/stages/bgp_routers.ts";
import { bgpRequirements, BgpStage, sessionOf, startWith } from "../support/stages/bgp_stage.ts";

const test = testNeeding("BGP by BIRD", bgpRequirements());

/** Accepts a part of what {@linkcode HOSTILE} has. */
const CAREFUL: BgpPlan = bgpPlan({
  peers: [bgpPeer("frr", "192.0.2.2")],
  announced: [announced("203.0.113.10/32")],
  imports: {
    ...NO_IMPORTS,
    external: cidrs("198.51.0.0/16", "10.0.0.0/8", "203.0.113.0/24"),
    refused: cidrs("10.96.0.0/12", "203.0.113.10/32", "10.244.0.0/16", "192.0.2.0/24"),
  },
});

/** A default route, the node's own address, its VIP, a Service, a pod, and one honest prefix. */
const HOSTILE = [
  "0.0.0.0/0",
  "192.0.2.1/32",
  "203.0.113.10/32",
  "10.96.0.1/32",
  "10.244.1.0/25",
  "172.16.0.0/12",
  "198.51.100.0/24",
];

test("only configured prefixes of a peer get into the kernel, by table and metric of their own", async () => {
  await using stage = await BgpStage.create(2);
  const [node, frr] = [stage.node(1), stage.frr(2)];
  await frr.start(frrConfiguration({ networks: HOSTILE }));
  const before = await node.routes();
  const dataPlane = await startWith(node, CAREFUL);
  await dataPlane.sync(CAREFUL);
  const learned = "198.51.100.0/24 via 192.0.2.2 dev eth0 proto bird metric 4242";
  await eventually("the route", async () => (await node.routes()).includes(learned));
  // BIRD reads an update as a whole, so the refused ones were there before.
  assertEquals(await node.routes(), [...before, learned].sort());
  const session = await sessionOf(dataPlane, CAREFUL, "frr");
  assertEquals([session.imported, session.exported, session.refusedUpdates], [1, 1, 6]);

  const imports = { ...CAREFUL.imports, defaultRoute: true, table: 77 };
  await dataPlane.sync({ ...CAREFUL, imports });
  await eventually(
    "the default route in the other table",
    async () => (await node.routes("77")).some((line) => line.startsWith("default via 192.0.2.2")),
  );
  await eventually(
    "no route in the former table",
    async () => (await node.routes()).length === 1,
  );
  // What is refused from now on was sent before, and nothing is sent again.
  const refused = [...imports.refused, ...cidrs("198.51.100.0/25", "198.51.100.0/24")];
  await dataPlane.sync({ ...CAREFUL, imports: { ...imports, refused } });
  await eventually("only the default route", async () => (await node.routes("77")).length === 1);
  await dataPlane.sync(bgpPlan({ imports }));
  await eventually(
    "no route of a removed peer",
    async () => (await node.routes("77")).length === 0,
  );
});

test("a distant peer is announced to, and a route with an unknown next hop is not used", async () => {
  await using stage = await BgpStage.create(2);
  const [node, frr] = [stage.node(1), stage.frr(2)];
  await frr.namespace.ip("addr add 198.18.0.2/32 dev lo");
  await node.namespace.ip("route add 198.18.0.2/32 via 192.0.2.2");
  const neighbor = ["ebgp-multihop 3", "update-source 198.18.0.2"];
  await frr.start(frrConfiguration({ neighbor, networks: ["198.51.100.0/24"] }));
  const before = await node.routes();
  const plan = bgpPlan({
    peers: [bgpPeer("frr", "198.18.0.2", { multihopTtl: 3 })],
    announced: [announced("203.0.113.10/32")],
    imports: { ...NO_IMPORTS, external: cidrs("198.51.0.0/16") },
  });
  const dataPlane = await startWith(node, plan);
  await dataPlane.sync(plan);
  await eventually(
    "the announcement",
    async () => (await frr.paths("203.0.113.10/32")).length > 0,
  );
  await eventually(
    "the prefix",
    async () => (await sessionOf(dataPlane, plan, "frr")).imported === 1,
  );
  assertStringIncludes(await node.birdc("show route"), "198.51.100.0/24      unreachable");
  assertEquals(await node.routes(), before);
  assertEquals(await dataPlane.compare(plan), []);
});
