/** The driver of BIRD with real BGP daemons as peers. */
import { assert, assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { announced, bgpPeer, bgpPlan, cidrs, NO_IMPORTS } from "../support/builders/bgp_plans.ts";
import { eventually } from "../support/eventually.ts";
import { testNeeding } from "../support/requirement.ts";
import { frrConfiguration, gobgpConfiguration } from "../support/stages/bgp_routers.ts";
import {
  bgpRequirements,
  BgpStage,
  established,
  sessionOf,
  startWith,
} from "../support/stages/bgp_stage.ts";

const test = testNeeding("BGP by BIRD", bgpRequirements());

/** A table of the kernel in which a test looks for routes of peers. */
const TABLE = 77;

test("BIRD announces a plan's prefixes to FRR and gobgpd, and withdraws them", async () => {
  await using stage = await BgpStage.create(3);
  const [node, frr, gobgp] = [stage.node(1), stage.frr(2), stage.gobgp(3)];
  const passwordFile = `${stage.folder}/password`;
  await Deno.writeTextFile(passwordFile, "correct;horse#battery\n");
  await frr.start(frrConfiguration({ neighbor: ["password correct;horse#battery"] }));
  await gobgp.start(GOBGP);
  const peers = [
    bgpPeer("frr", "192.0.2.2", { prepend: 2, passwordFile }),
    bgpPeer("gobgp", "192.0.2.3", { role: "external" }),
  ];
  const vip = announced("203.0.113.10/32", {
    communities: ["64512:100", "65535:65281"],
    largeCommunities: ["64512:1:100"],
    localPreference: 200,
  });
  const plan = bgpPlan({
    peers,
    announced: [announced("10.244.1.0/24", { kind: "pod-cidr", to: ["mesh"] }), vip],
  });
  const dataPlane = await startWith(node, plan);
  const report = await dataPlane.sync(plan);
  assertEquals(report, { full: true, operations: {}, quarantined: [] });
  const [path] = await eventually("the announcement at FRR", async () => {
    const paths = await frr.paths("203.0.113.10/32");
    return paths.length > 0 && paths;
  });
  assertEquals(path?.aspath.string, "64512 64512 64512");
  // `no-export` is for the router: BIRD does not apply it to routes of its own.
  assertEquals(path?.community?.string, "64512:100 no-export");
  assertEquals(path?.largeCommunity?.string, "64512:1:100");
  assertEquals(path?.nexthops.map(({ ip }) => ip), ["192.0.2.1"]);
  await eventually("the announcement at gobgpd", () => gobgp.has("203.0.113.10/32", "64512:100"));
  assertEquals(await frr.paths("10.244.1.0/24"), [], "a prefix for the mesh left it");
  // The node itself routes nothing differently.
  assertEquals(await node.routes(), [
    "192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.1",
  ]);
  await established(dataPlane, plan, "gobgp");
  assertEquals(await dataPlane.compare(plan), []);
  const sent = await dataPlane.sentPrefixes();
  assertEquals([...sent].map(([peer, prefixes]) => [peer, [...prefixes]]), [
    ["frr", ["203.0.113.10/32"]],
    ["gobgp", ["203.0.113.10/32"]],
  ]);

  const since = (await sessionOf(dataPlane, plan, "frr")).since;
  // Other attributes of a prefix are sent in the same session.
  const changed = { ...plan, announced: [{ ...vip, communities: ["64512:200"] }] };
  await dataPlane.sync(changed);
  await eventually(
    "the other community at FRR",
    async () => (await frr.paths("203.0.113.10/32"))[0]?.community?.string === "64512:200",
  );
  const longer = { ...changed, peers: [{ ...peers[0]!, prepend: 3 }, peers[1]!] };
  await dataPlane.sync(longer);
  await eventually(
    "the longer path at FRR",
    async () =>
      (await frr.paths("203.0.113.10/32"))[0]?.aspath.string === "64512 64512 64512 64512",
  );
  const without = { ...longer, announced: [announced("203.0.113.11/32")] };
  assertEquals(
    (await dataPlane.compare(without)).map(({ object, name, kind }) => [object, name, kind]),
    [
      ["configuration", "file", "altered"],
      ["announcement", "203.0.113.11/32 to frr", "missing"],
      ["announcement", "203.0.113.10/32 to frr", "extra"],
      ["announcement", "203.0.113.11/32 to gobgp", "missing"],
      ["announcement", "203.0.113.10/32 to gobgp", "extra"],
    ],
  );
  const { operations } = await dataPlane.sync(without);
  assertEquals(operations, { files: 1, reconfigurations: 1 });
  await eventually(
    "the withdrawal at FRR",
    async () =>
      (await frr.paths("203.0.113.10/32")).length === 0 &&
      (await frr.paths("203.0.113.11/32")).length === 1,
  );
  await eventually("the withdrawal at gobgpd", async () => !await gobgp.has("203.0.113.10/32"));
  assertEquals((await sessionOf(dataPlane, plan, "frr")).since, since, "the session began again");
});

const GOBGP = gobgpConfiguration({ as: 64513, id: "192.0.2.3" });

for (
  const { family, peer, neighbor, otherNextHop } of [
    { family: "IPv4", peer: "192.0.2.2", neighbor: "192.0.2.1", otherNextHop: "2001:db8::1" },
    { family: "IPv6", peer: "2001:db8::2", neighbor: "2001:db8::1", otherNextHop: "192.0.2.1" },
  ] as const
) {
  test(`BIRD announces prefixes of both families over one session of ${family}`, async () => {
    await using stage = await BgpStage.create(2);
    const [node, frr] = [stage.node(1), stage.frr(2)];
    await frr.start([
      "log stdout",
      "router bgp 64513",
      " bgp router-id 192.0.2.2",
      " no bgp ebgp-requires-policy",
      " no bgp default ipv4-unicast",
      " no bgp network import-check",
      ` neighbor ${neighbor} remote-as 64512`,
      ` neighbor ${neighbor} timers connect 1`,
      ...["ipv4", "ipv6"].flatMap((each) => [
        ` address-family ${each} unicast`,
        `  network ${each === "ipv4" ? "198.51.100.0/24" : "2001:db8:ff:1::/64"}`,
        `  neighbor ${neighbor} activate`,
        " exit-address-family",
      ]),
    ]);
    const [four, six] = ["203.0.113.10/32", "2001:db8:1::10/128"] as const;
    const plan = bgpPlan({
      peers: [bgpPeer("frr", peer, {
        localAddress: parseIpAddress(neighbor),
        otherNextHop: parseIpAddress(otherNextHop),
      })],
      announced: [announced(six), announced(four)],
      imports: {
        ...{ ...NO_IMPORTS, table: TABLE },
        external: cidrs("198.51.100.0/24", "2001:db8:ff::/48"),
      },
    });
    const dataPlane = await startWith(node, plan);
    await dataPlane.sync(plan);
    const hops = async (prefix: string) =>
      (await frr.paths(prefix)).flatMap(({ nexthops }) => nexthops.map(({ ip }) => ip));
    for (const [prefix, hop] of [[four, "192.0.2.1"], [six, "2001:db8::1"]] as const) {
      await eventually(`${prefix} at FRR`, async () => (await hops(prefix)).length > 0);
      assert((await hops(prefix)).includes(hop), `${await hops(prefix)}`);
    }
    assertEquals(await dataPlane.compare(plan), []);
    // Only its own family is accepted.
    await eventually("two prefixes out, one in", async () => {
      const session = await sessionOf(dataPlane, plan, "frr");
      return session.exported === 2 && session.imported === 1;
    });
    await eventually("its route in the kernel", async () => {
      const flag = family === "IPv4" ? "-4" : "-6";
      const routes = await node.namespace.ip(`${flag} route show table ${TABLE}`);
      return routes.includes(`via ${peer} dev eth0 proto bird metric 4242`);
    });
    // Without the setting, the other family is withdrawn.
    const { otherNextHop: _, ...single } = plan.peers[0]!;
    await dataPlane.sync({ ...plan, peers: [single] });
    const other = family === "IPv4" ? six : four;
    await eventually("it is withdrawn", async () => (await hops(other)).length === 0);
  });
}
