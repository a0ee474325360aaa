/** A cluster with BGP whose peers have wrong passwords, or send what they must not send. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { eventually } from "../support/eventually.ts";
import { isMissing, program } from "../support/requirement.ts";
import { assertOnlyMoved, printFigure } from "../support/stages/bgp_load.ts";
import { PASSWORD, passwordFileOf, RoutedScene, WEB } from "../support/stages/bgp_routed_scene.ts";
import type { SceneNode } from "../support/stages/bgp_scene_node.ts";
import { bgpRequirements, type BirdNode } from "../support/stages/bgp_stage.ts";

const ignore = isMissing("a cluster with BGP", [
  ...bgpRequirements(),
  program("nft"),
  program("socat"),
]);

/** A prefix that a router may send; everything else of {@linkcode GARBAGE} is refused. */
const HONEST = "198.18.5.0/24";
const SERVICE_RANGE = "172.30.0.0/16";
const GARBAGE = [
  "0.0.0.0/0",
  // The Service's address, and a free one of the pool.
  ...[`${WEB}/32`, "203.0.113.15/32"],
  // The range of cluster IPs, and an address of it.
  ...[SERVICE_RANGE, "172.30.0.1/32"],
  // The addresses of the nodes, and the pods of the first one.
  ...["192.0.2.1/32", "192.0.2.2/32", "10.244.1.0/24"],
];
/** A busy machine reads the configuration of BIRD slowly, and then kube-relay reads it seldom. */
const REREAD = { deadlineMs: 240_000 };
/** More than `imports.limitPerPeer`. */
const MANY = 100_000;

/** Writes the configuration of a BIRD that sends prefixes to both nodes. */
async function writeHostile(hostile: BirdNode, prefixes: readonly string[]): Promise<void> {
  const sessions = [1, 2].map((node) =>
    `protocol bgp node${node} { local as 64666; neighbor 192.0.2.${node} as 64512; ` +
    "connect delay time 1; error wait time 1, 2; ipv4 { import none; export all; }; }"
  );
  const lines = [
    "router id 192.0.2.5;",
    "protocol device {}",
    "protocol static { ipv4;",
    ...prefixes.map((prefix) => `route ${prefix} blackhole;`),
    "}",
    ...sessions,
    "",
  ];
  await Deno.writeTextFile(hostile.paths.file, lines.join("\n"));
}

/** The routes of peers in the kernel of a node. */
async function imported({ namespace }: SceneNode): Promise<readonly string[]> {
  const lines = (await namespace.ip("route show proto bird")).split("\n");
  return lines.flatMap((line) => line.split(" ")[0] || []);
}

Deno.test({
  name: "peers with a wrong password or with garbage harm no other session and no request",
  ignore,
  async fn(t) {
    await using routed = await RoutedScene.create({
      ...{
        nodes: 2,
        others: 1,
        hasPassword: true,
        peers: [{ as: 64_666, address: "192.0.2.5", name: "hostile" }],
      },
      // Without graceful restart no session waits for one that is down.
      gracefulRestartSeconds: 0,
      bgp: { imports: { external: ["0.0.0.0/1", "128.0.0.0/1"] } },
      prepare: (node) =>
        Deno.writeTextFile(passwordFileOf(node), node.number === 1 ? "wrong\n" : `${PASSWORD}\n`),
    });
    const { frr, gobgp, load, scene } = routed;
    await scene.api.write([{
      apiVersion: "networking.k8s.io/v1",
      kind: "ServiceCIDR",
      metadata: { name: "kubernetes" },
      spec: { cidrs: [SERVICE_RANGE] },
    }]);
    const [first, second] = scene.nodes as [SceneNode, SceneNode];
    const routersOf = async (namespace: typeof frr.namespace) =>
      `${await scene.nodesAt(namespace, WEB)}`;

    const hostile = scene.stage.node(5);
    await writeHostile(hostile, [HONEST]);
    await hostile.startBird();

    await t.step("a wrong password: one session is down, with the likely cause", async () => {
      await eventually(
        "the others are up",
        async () =>
          await routersOf(frr.namespace) === "node-2" &&
          await routersOf(gobgp.namespace) === "node-1,node-2",
      );
      const text = await eventually(
        "the cause",
        async () => (await first.peers()).find((line) => line.includes("the passwords may differ")),
      );
      assertStringIncludes(text, "frr (192.0.2.3, AS 64513): trying");
      printFigure(`status with a wrong password: ${text}`);
      const up = async (node: SceneNode) =>
        (await node.peers()).filter((line) => line.includes("established since")).map((line) =>
          line.split(" ")[0]
        );
      assertEquals(await up(first), ["gobgp", "hostile"]);
      assertEquals(await up(second), ["frr", "gobgp", "hostile"]);
    });

    await t.step("the password is corrected in its file", async () => {
      const loss = await load.during("the password is corrected", async (onEffect) => {
        await load.goOn(500);
        const correct = () => Deno.writeTextFile(passwordFileOf(first), `${PASSWORD}\n`);
        const ms = await routed.routedAfter(correct, scene.nodes, REREAD);
        onEffect();
        printFigure(`routed after the password was corrected: ${ms} ms`);
      });
      assertOnlyMoved(loss);
    });

    const announcedOnly = async () => {
      const { routes } = JSON.parse(await frr.vtysh("show bgp ipv4 unicast json"));
      assertEquals(Object.keys(routes), [`${WEB}/32`], "at FRR");
      assertEquals([...(await gobgp.nextHops()).keys()], [`${WEB}/32`], "at gobgpd");
    };

    await t.step("a peer sends everything that nodes must not take", async () => {
      await writeHostile(hostile, [...GARBAGE, HONEST]);
      await load.losesNothing("a peer sends garbage", async () => {
        await hostile.birdc("configure");
        for (const [node, refused] of [[first, 8], [second, 7]] as const) {
          await eventually(
            "the garbage is refused",
            async () => (await node.peers()).some((line) => line.includes(`${refused} updates`)),
          );
        }
        await load.goOn(500);
      });
      assertEquals(await imported(first), [HONEST]);
      // The setting contains the pods of other nodes.
      assertEquals(await imported(second), ["10.244.1.0/24", HONEST]);
      await announcedOnly();
    });

    await t.step(`a peer sends ${MANY} prefixes`, async () => {
      const many = Array.from(
        { length: MANY },
        (_, index) => `100.${64 + (index >> 16)}.${index >> 8 & 255}.${index & 255}/32`,
      );
      await writeHostile(hostile, [HONEST, ...many]);
      await load.losesNothing(`a peer sends ${MANY} prefixes`, async () => {
        await hostile.birdc("configure");
        for (const node of scene.nodes) {
          const text = await eventually(
            "the session is shut down",
            async () =>
              (await node.peers()).find((line) => line.includes("the peer sent more than")),
          );
          assertStringIncludes(text, "more than 1000 prefixes");
          await eventually("its routes are gone", async () => (await imported(node)).length === 0);
        }
        await load.goOn(500);
      });
      await announcedOnly();
      await routed.routed(scene.nodes);
    });
  },
});
