/** What the driver of BIRD accepts from a peer that has imports of its own. */
import { assert, assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import type { BgpPlan } from "../../lib/routing/bgp_plan.ts";
import { peerImportSentence } from "../../lib/routing/explain_routing.ts";
import { frrConfiguration } from "../support/stages/bgp_routers.ts";
import {
  announced,
  bgpPeer,
  bgpPlan,
  cidrs,
  imported,
  NO_IMPORTS,
  peerImports,
} from "../support/builders/bgp_plans.ts";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import { bgpRequirements, BgpStage, sessionOf, startWith } from "../support/stages/bgp_stage.ts";

const test = testNeeding("BGP by BIRD", bgpRequirements());

/** Prefixes that a router sends, with whether {@linkcode OWN} admits them. */
const OFFERED: ReadonlyMap<string, boolean> = new Map([
  ["0.0.0.0/0", false],
  ["10.1.0.0/16", true],
  ["10.1.2.0/24", true],
  ["10.1.2.0/25", false],
  ["10.0.0.0/12", false],
  // The plan accepts it from other peers.
  ["172.16.0.0/16", false],
  ["198.51.100.128/25", true],
  // Of the cluster: a VIP, a cluster IP, the addresses of two nodes.
  ["203.0.113.10/32", false],
  ["10.96.0.0/16", false],
  ["192.0.2.1/32", false],
  ["192.0.2.77/32", true],
]);
const OWN = peerImports({
  prefixes: [
    imported("10.0.0.0/8", 16, 24),
    imported("198.51.100.0/24", 24, 32),
    imported("203.0.113.0/24", 24, 32),
  ],
  clusterPrefixes: [imported("192.0.2.77/32", 32, 32)],
});

test("a peer with imports of its own gets only those prefixes into the kernel, as explained", async () => {
  await using stage = await BgpStage.create(2);
  const [node, frr] = [stage.node(1), stage.frr(2)];
  await frr.start(frrConfiguration({ networks: [...OFFERED.keys()] }));
  const imports = {
    ...NO_IMPORTS,
    external: cidrs("172.16.0.0/12"),
    refused: cidrs("10.96.0.0/12", "203.0.113.10/32", "192.0.2.1/32", "192.0.2.77/32"),
  };
  const planOf = (own: BgpPlan["peers"][number]["import"]) =>
    bgpPlan({
      peers: [bgpPeer("frr", "192.0.2.2", own && { import: own })],
      announced: [announced("203.0.113.10/32")],
      imports,
    });
  const plan = planOf(OWN);
  const dataPlane = await startWith(node, plan);
  await dataPlane.sync(plan);
  const before = (await node.routes()).filter((line) => !line.includes("proto bird"));
  const learned = async () => {
    const lines = (await node.routes()).filter((line) => line.includes("proto bird"));
    assert(lines.every((line) => line.endsWith("metric 4242")), `${lines}`);
    return lines.map((line) => line.split(" ")[0]!.replace(/^[^/]*$/, "$&/32")).sort();
  };
  const admitted = [...OFFERED].filter(([, isAdmitted]) => isAdmitted).map(([prefix]) => prefix);
  await eventually(
    "the admitted ones",
    async () => `${await learned()}` === `${admitted.sort()}`,
  );
  const session = await sessionOf(dataPlane, plan, "frr");
  assertEquals(
    [session.imported, session.refusedUpdates],
    [admitted.length, OFFERED.size - admitted.length],
  );
  for (const [prefix, isAdmitted] of OFFERED) {
    const sentence = peerImportSentence(imports, { prefix: parseCidr(prefix), own: OWN });
    assertEquals(sentence.startsWith("accepted"), isAdmitted, `${prefix}: ${sentence}`);
  }

  await dataPlane.sync(planOf(peerImports({ defaultRoute: true })));
  await eventually("the default route", async () => `${await learned()}` === "default/32");
  await dataPlane.sync(planOf(undefined));
  await eventually("those of all peers", async () => `${await learned()}` === "172.16.0.0/16");
  await dataPlane.sync(planOf(peerImports()));
  await eventually("nothing", async () => (await learned()).length === 0);
  await dataPlane.sync(plan);
  await eventually("the admitted ones", async () => `${await learned()}` === `${admitted}`);
  const { removed } = await dataPlane.cleanup();
  assertEquals(await node.routes(), before, `${removed}`);
});
