/** What the driver of BIRD accepts from peers, and what it does about hostile ones. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { parsePort } from "../../lib/net/port.ts";
import type { BgpPlan } from "../../lib/routing/bgp_plan.ts";
import { announced, bgpPeer, bgpPlan, cidrs, NO_IMPORTS } from "../support/builders/bgp_plans.ts";
import { eventually } from "../support/eventually.ts";
import { isMissing } from "../support/requirement.ts";
import { frrConfiguration } from "../support/stages/bgp_routers.ts";
import {
  bgpRequirements,
  BgpStage,
  established,
  sessionOf,
  startWith,
} from "../support/stages/bgp_stage.ts";

const ignore = isMissing("BGP by BIRD", bgpRequirements());

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

Deno.test({
  name: "only configured prefixes of a peer get into the kernel, by table and metric of their own",
  ignore,
  fn: async () => {
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
      async () =>
        (await node.routes("77")).some((line) => line.startsWith("default via 192.0.2.2")),
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
  },
});

Deno.test({
  name: "a distant peer is announced to, and a route with an unknown next hop is not used",
  ignore,
  fn: async () => {
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
  },
});

Deno.test({
  name: "a peer that sends 100,000 prefixes is shut down until it is enabled, and no other peer",
  ignore,
  fn: async () => {
    await using stage = await BgpStage.create(3);
    const [node, hostile, frr] = [stage.node(1), stage.node(3), stage.frr(2)];
    await frr.start(frrConfiguration());
    const count = 100_000;
    const routes = Array.from(
      { length: count },
      (_, index) => `  route 10.${index >> 16}.${index >> 8 & 255}.${index & 255}/32 blackhole;`,
    );
    const configuration = `${stage.folder}/hostile.conf`;
    await Deno.writeTextFile(
      configuration,
      [
        ...["router id 192.0.2.3;", "protocol device {", "}", "protocol static {", "  ipv4;"],
        ...[...routes, "}", "protocol bgp node {", "  local as 64514;"],
        ...["  neighbor 192.0.2.1 as 64512;", "  connect delay time 1;", "  error wait time 1, 2;"],
        ...["  ipv4 { import none; export all; };", "}", ""],
      ].join("\n"),
    );
    await hostile.startBird(configuration);
    const plan = bgpPlan({
      peers: [bgpPeer("frr", "192.0.2.2"), bgpPeer("hostile", "192.0.2.3", { as: 64_514 })],
      announced: [announced("203.0.113.10/32")],
      imports: { ...NO_IMPORTS, external: cidrs("10.0.0.0/8"), limitPerPeer: 500 },
    });
    const before = await node.routes();
    const dataPlane = await startWith(node, plan);
    const shutDown = async () => (await sessionOf(dataPlane, plan, "hostile")).isShutDown;
    await eventually("the end of the session", shutDown, { deadlineMs: 60_000 });
    assertStringIncludes(
      (await sessionOf(dataPlane, plan, "hostile")).description,
      "the peer sent more than 500 prefixes",
    );
    await eventually("no route in the kernel", async () => (await node.routes()).length === 1);
    assertEquals(await node.routes(), before);

    await established(dataPlane, plan, "frr");
    const more = { ...plan, announced: [...plan.announced, announced("203.0.113.11/32")] };
    for (const [index, wanted] of [more, plan, more].entries()) {
      const { quarantined } = await dataPlane.sync(wanted);
      assertEquals(quarantined.map(({ key }) => key), ["peer hostile"], `sync ${index}`);
      const session = await sessionOf(dataPlane, wanted, "hostile");
      assertEquals(session.state, "Down", `sync ${index}`);
    }
    await eventually(
      "the other peer",
      async () => (await frr.paths("203.0.113.11/32")).length === 1,
    );

    // The limit is raised: the peer is tried again.
    const raised = { ...more, imports: { ...more.imports, limitPerPeer: 2 * count } };
    assertEquals((await dataPlane.sync(raised)).quarantined, []);
    await eventually(
      "all prefixes",
      async () => (await sessionOf(dataPlane, raised, "hostile")).imported === count,
      { deadlineMs: 60_000 },
    );
  },
});

Deno.test({
  name: "nodes exchange pod CIDRs by a reflector, and nothing of external peers",
  ignore,
  fn: async () => {
    await using stage = await BgpStage.create(4);
    const nodes = [stage.node(1), stage.node(2), stage.node(3)];
    const frr = stage.frr(4);
    await frr.start([
      ...frrConfiguration({ networks: ["198.51.100.0/24"] }).slice(0, 2),
      " bgp router-id 192.0.2.4",
      ...frrConfiguration({ networks: ["198.51.100.0/24"] }).slice(3),
    ]);
    const imports = {
      ...NO_IMPORTS,
      mesh: cidrs("10.244.0.0/16"),
      external: cidrs("198.51.100.0/24"),
    };
    const plans = nodes.map((_, index) => {
      const number = index + 1;
      const others = number === 1 ? [2, 3] : [1];
      return bgpPlan({
        routerId: `192.0.2.${number}`,
        peers: [
          ...number === 1 ? [bgpPeer("router", "192.0.2.4")] : [],
          ...others.map((other) =>
            bgpPeer(`node${other}`, `192.0.2.${other}`, {
              as: 64_512,
              port: parsePort(1_790),
              role: number === 1 ? "reflector-client" : "mesh",
            })
          ),
        ],
        announced: [
          announced(`10.244.${number}.0/24`, {
            kind: "pod-cidr",
            to: ["mesh", "reflector-client"],
          }),
        ],
        imports: { ...imports, refused: cidrs(`10.244.${number}.0/24`) },
      });
    });
    const dataPlanes = await Promise.all(
      nodes.map((node, index) => startWith(node, plans[index]!)),
    );
    for (const [index, dataPlane] of dataPlanes.entries()) await dataPlane.sync(plans[index]!);
    for (const [index, node] of nodes.entries()) {
      const wanted = [1, 2, 3].filter((number) => number !== index + 1).map((number) =>
        // The next hop of a reflected route is the node itself, not the reflector.
        `10.244.${number}.0/24 via 192.0.2.${number} dev eth0 proto bird metric 4242`
      );
      await eventually(`the pod CIDRs on node ${index + 1}`, async () => {
        const routes = await node.routes();
        return wanted.every((line) => routes.includes(line));
      });
      // Only the reflector has a session with the router, whose prefix it keeps to itself.
      const external = (await node.routes()).filter((line) => line.startsWith("198.51.100.0/24"));
      if (index > 0) assertEquals(external, []);
    }
    await eventually(
      "the router's prefix",
      async () => (await nodes[0]!.routes()).some((line) => line.startsWith("198.51.100.0/24")),
    );
    const sent = await dataPlanes[0]!.sentPrefixes();
    assertEquals([...sent].map(([peer, prefixes]) => [peer, [...prefixes].sort()]).sort(), [
      ["node2", ["10.244.1.0/24", "10.244.3.0/24"]],
      ["node3", ["10.244.1.0/24", "10.244.2.0/24"]],
      ["router", []],
    ]);
    for (const number of [1, 2, 3]) assertEquals(await frr.paths(`10.244.${number}.0/24`), []);
    for (const [index, dataPlane] of dataPlanes.entries()) {
      const differences = await dataPlane.compare(plans[index]!);
      assert(differences.length === 0, JSON.stringify(differences));
    }
  },
});
