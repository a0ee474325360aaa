import { assertEquals, assertRejects } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { systemClock } from "../../../lib/os/clock.ts";
import type { PodNetworkPlan } from "../../../lib/routing/pod_network_plan.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { PodNetworkDataPlane } from "./data_plane.ts";

const DEVICE = "kr-pod-abcdefgh";
const SOURCE = parseIpAddress("10.244.1.0");
const PLAN: PodNetworkPlan = {
  podCidrs: [parseCidr("10.244.1.0/24")],
  addresses: [parseIpAddress("192.0.2.1")],
  routes: [{
    destination: parseCidr("10.244.3.0/24"),
    node: "far",
    tunnel: DEVICE,
    source: SOURCE,
  }],
  tunnels: [{
    ...{ device: DEVICE, node: "far", family: "IPv4", source: SOURCE },
    ...{ local: parseIpAddress("192.0.2.1"), remote: parseIpAddress("192.0.3.1") },
  }],
  isOverlay: true,
  unrouted: [],
  problems: [],
};
const NOTHING: PodNetworkPlan = { ...PLAN, routes: [], tunnels: [] };

/** As `ip -j` prints them. */
const ETH0 = { ifname: "eth0", mtu: 9000, flags: ["UP"], "addr_info": [{ local: "192.0.2.1" }] };
const TUNNEL = {
  ...{ ifname: DEVICE, mtu: 8980, flags: ["UP"], ifalias: "kube-relay:far" },
  ...{ linkinfo: { "info_kind": "ipip" }, "addr_info": [{ local: SOURCE }, { local: "fe80::1" }] },
};
const ROUTE = { dst: "10.244.3.0/24", dev: DEVICE, metric: 256, prefsrc: SOURCE };

interface Machine {
  readonly links?: readonly object[];
  readonly routes?: readonly object[];
  /** Each line fails with it. */
  readonly failure?: string;
}

/** A machine without nftables and iptables. */
function planeOn({ links = [ETH0], routes = [], failure }: Machine) {
  const commands = new FakeCommandRunner()
    .on("", { code: 1 })
    .on("ip -j -d addr show", { stdout: JSON.stringify(links) })
    .on("ip -4 -j route show table main proto 75", { stdout: JSON.stringify(routes) })
    .on("ip -6 -j route show table main proto 75", {})
    .on("ip -4 -force -j -batch -", {})
    .on("nft --check", {})
    .on("nft list table", { code: 1, stderr: "Error: No such file or directory" })
    .on("ip -force -batch -", ({ stdin }) =>
      failure === undefined ? {} : {
        code: 1,
        stderr: stdin.trim().split("\n").map((_, index) =>
          `RTNETLINK answers: ${failure}\nCommand failed -:${index + 1}\n`
        ).join(""),
      });
  const edges = { clock: systemClock, commands, logger: new MemoryLogger() };
  return { commands, plane: new PodNetworkDataPlane(edges, { cniFiles: [] }) };
}

/** The lines that a sync gives to `ip -batch`. */
async function linesOf(plan: PodNetworkPlan, machine: Machine): Promise<readonly string[]> {
  const { commands, plane } = planeOn(machine);
  const { quarantined } = await plane.sync(plan);
  assertEquals(quarantined, []);
  const { stdin = "" } = commands.calls.find(({ line }) => line === "ip -force -batch -") ?? {};
  return stdin.split("\n").filter((line) => line !== "");
}

const ALL = [
  `link add ${DEVICE} type ipip local 192.0.2.1 remote 192.0.3.1 ttl 64`,
  `link set ${DEVICE} mtu 8980 alias kube-relay:far up`,
  `addr replace 10.244.1.0/32 dev ${DEVICE}`,
  `route add 10.244.3.0/24 dev ${DEVICE} proto 75 metric 256 src 10.244.1.0`,
];

Deno.test("a sync makes tunnels before routes, and removes routes before tunnels", async () => {
  assertEquals(await linesOf(PLAN, {}), ALL);
  assertEquals(await linesOf(NOTHING, { links: [ETH0, TUNNEL], routes: [ROUTE] }), [
    `route del 10.244.3.0/24 dev ${DEVICE} proto 75 metric 256`,
    `link del ${DEVICE}`,
  ]);
});

Deno.test("a sync writes nothing on a machine that is as planned", async () => {
  assertEquals(await linesOf(PLAN, { links: [ETH0, TUNNEL], routes: [ROUTE] }), []);
});

Deno.test("a sync repairs what another program changed, and diff shows it", async () => {
  const set = `link set ${DEVICE} mtu 8980 alias kube-relay:far up`;
  const add = `addr replace 10.244.1.0/32 dev ${DEVICE}`;
  const changes: readonly (readonly [Machine, lines: readonly string[], found: string])[] = [
    [
      { links: [ETH0, { ...TUNNEL, mtu: 1480 }], routes: [ROUTE] },
      [set, add],
      "a tunnel, kube-relay:far, MTU 1480, up, 10.244.1.0",
    ],
    [
      { links: [ETH0, { ...TUNNEL, flags: [] }], routes: [ROUTE] },
      [set, add],
      "a tunnel, kube-relay:far, MTU 8980, down, 10.244.1.0",
    ],
    [
      { links: [ETH0, { ...TUNNEL, "addr_info": [{ local: "10.9.0.0" }] }], routes: [ROUTE] },
      [set, add, `addr del 10.9.0.0/32 dev ${DEVICE}`],
      "a tunnel, kube-relay:far, MTU 8980, up, 10.9.0.0",
    ],
    [
      {
        links: [ETH0, TUNNEL],
        routes: [{ dst: "10.244.3.0/24", dev: "eth0", gateway: "192.0.3.1", metric: 256 }],
      },
      [`route replace 10.244.3.0/24 dev ${DEVICE} proto 75 metric 256 src 10.244.1.0`],
      "via 192.0.3.1",
    ],
  ];
  for (const [machine, lines, found] of changes) {
    assertEquals(await linesOf(PLAN, machine), lines);
    const differences = await planeOn(machine).plane.compare(PLAN);
    assertEquals(differences.map((each) => [each.kind, each.found]), [["altered", found]]);
  }
});

Deno.test("a route of a former run with metric 0 goes, and the one of the plan comes", async () => {
  const { metric: _, ...route } = ROUTE;
  assertEquals(await linesOf(PLAN, { links: [ETH0, TUNNEL], routes: [route] }), [
    ALL[3]!,
    `route del 10.244.3.0/24 dev ${DEVICE} proto 75`,
  ]);
});

Deno.test("a device of another kind is left alone, whatever its name", async () => {
  const links = [ETH0, { ...TUNNEL, linkinfo: { "info_kind": "dummy" } }];
  assertEquals(await linesOf(NOTHING, { links }), []);
});

Deno.test("lines that fail put their node into quarantine, with the first reason and a remedy", async () => {
  const { plane } = planeOn({ failure: "File exists" });
  const { operations, quarantined } = await plane.sync(PLAN);
  assertEquals(operations, {});
  assertEquals(quarantined, [
    {
      key: "Node far",
      reason: `cannot ${ALL[0]}: RTNETLINK answers: File exists; ` +
        "another program has a tunnel with the same ends: remove it",
    },
    {
      key: "Node far",
      reason: `cannot ${ALL[3]}: RTNETLINK answers: File exists; ` +
        "another program has a route with the same metric: remove it",
    },
  ]);
});

Deno.test("the MTU of pods leaves room for the header of tunnels, unless it is given", () =>
  withFolder(async (folder) => {
    const cni = { path: `${folder}/net.d/10-kube-relay.conflist`, portMappings: true };
    const mtuOf = async (plan: Partial<PodNetworkPlan>, machine: Machine = {}) => {
      await planeOn(machine).plane.sync({ ...NOTHING, cni, ...plan });
      return JSON.parse(await Deno.readTextFile(cni.path)).plugins[0].mtu;
    };
    assertEquals(await mtuOf({}), 8980);
    assertEquals(await mtuOf({ isOverlay: false }), 9000);
    assertEquals(await mtuOf({ mtu: 1400 }), 1400);
    assertEquals(await mtuOf({}, { links: [] }), 1480, "no interface has the address");
  }));

Deno.test("a route that is gone already is no failure of its removal", async () => {
  const { plane } = planeOn({ routes: [ROUTE], failure: "No such process" });
  assertEquals((await plane.sync(NOTHING)).quarantined, []);
});

Deno.test("a route that cannot be written is not reported a second time for the route that is chosen", async () => {
  const { commands, plane } = planeOn({ links: [ETH0, TUNNEL], failure: "File exists" });
  commands.on("ip -4 -force -j -batch -", { stdout: '[{"dst":"default","dev":"eth0"}]\n' });
  const { quarantined } = await plane.sync(PLAN);
  assertEquals(quarantined.map(({ reason }) => reason.split(" ")[0]), ["cannot"]);
});

Deno.test("masquerade rules of an earlier run are removed once, and are then not looked for again", async () => {
  const { commands, plane } = planeOn({});
  let rules: string | undefined = "table inet kube-relay-pods {\n}\n";
  commands
    .on(
      "nft list table",
      () =>
        rules === undefined
          ? { code: 1, stderr: "Error: No such file or directory" }
          : { stdout: rules },
    )
    .on("nft -f", ({ stdin }) => {
      rules = stdin.includes("postrouting") ? stdin : undefined;
      return {};
    });
  const operations = async (plan: PodNetworkPlan) => (await plane.sync(plan)).operations;
  const masquerade = { sources: PLAN.podCidrs, except: [] };
  assertEquals(await operations(NOTHING), { tables: 1 });
  assertEquals(await operations(NOTHING), {});
  const before = commands.calls.length;
  assertEquals(await operations(NOTHING), {});
  assertEquals(commands.calls.slice(before).filter(({ program }) => program === "nft"), []);
  // It is wanted again, as after a change of settings.
  assertEquals(await operations({ ...NOTHING, masquerade }), { tables: 1 });
  assertEquals(await operations({ ...NOTHING, masquerade }), {});
  assertEquals(await operations(NOTHING), { tables: 1 });
});

Deno.test("masquerade rules that cannot be read are reported and not replaced", async () => {
  const { commands, plane } = planeOn({});
  commands.on("nft list table", { code: 1, stderr: "Error: Operation not permitted" });
  const plan = { ...NOTHING, masquerade: { sources: PLAN.podCidrs, except: [] } };
  const { operations, quarantined } = await plane.sync(plan);
  assertEquals([operations, quarantined.map(({ key }) => key)], [{}, ["masquerade"]]);
  assertEquals(commands.calls.filter(({ line }) => line === "nft -f -"), []);
  await assertRejects(() => plane.compare(plan), Error, "Operation not permitted");
});
