/** A cluster with BGP while its parts restart, fail or are away: clients must not notice. */
import { assertEquals } from "@std/assert";
import { isMissing, program } from "../support/requirement.ts";
import { eventually } from "../support/eventually.ts";
import { assertOnlyMoved, BgpLoad } from "../support/stages/bgp_load.ts";
import { frrOfScene } from "../support/stages/bgp_routers.ts";
import { BgpScene, sceneNode, sceneService, sceneSlice } from "../support/stages/bgp_scene.ts";
import type { SceneNode } from "../support/stages/bgp_scene_node.ts";
import { bgpRequirements } from "../support/stages/bgp_stage.ts";

const ignore = isMissing("a cluster with BGP", [
  ...bgpRequirements(),
  program("nft"),
  program("socat"),
]);

/** The address of Service `web`, which has policy Local and an endpoint on every node. */
const WEB = "203.0.113.10";
/** The machine that is a router with FRR, behind which a client is. */
const ROUTER = 4;

/** Starts kube-relay on a node; a former one has to have ended. */
async function startRelay(node: SceneNode, mode = "nftables"): Promise<void> {
  const peers = [{ name: "frr", address: `192.0.2.${ROUTER}`, as: 64_513, bfd: true }];
  await node.startRelay({ bgp: { localAs: 64_512, peers }, mode });
}

/** When the sessions of a node began, as BIRD has it. */
async function sessionsOf({ bird }: SceneNode): Promise<readonly string[]> {
  const lines = (await bird.birdc("show protocols")).split("\n");
  return lines.filter((line) => line.startsWith("peer_") && line.includes("Established"));
}

Deno.test({
  name: "no request is lost while kube-relay, BIRD or the API server restarts",
  ignore,
  async fn(t) {
    await using scene = await BgpScene.create({ nodes: 3, others: 1 });
    const { api, nodes } = scene;
    const [first, second, third] = nodes as [SceneNode, SceneNode, SceneNode];
    const frr = scene.stage.frr(ROUTER);
    const load = BgpLoad.start([await scene.attachClient(ROUTER)], WEB);
    await scene.routePods();
    await scene.startServers();
    await frr.start(frrOfScene(nodes.length));
    await api.write([
      ...nodes.map((node) => sceneNode(node)),
      sceneService("web", { clusterIP: "172.30.0.41", externalTrafficPolicy: "Local" }),
      sceneSlice("web", nodes),
    ]);
    for (const node of nodes) await startRelay(node);
    await Promise.all(nodes.map((node) => node.startBird()));
    /** Waits until the router sends packets to these nodes only. */
    const routed = async (some: readonly SceneNode[]) => {
      const wanted = `${some.map(({ name }) => name)}`;
      await eventually(
        `${WEB} by ${wanted}`,
        async () => `${await scene.nodesAt(frr.namespace, WEB)}` === wanted,
      ).catch((cause) => {
        throw new Error(scene.logs, { cause });
      });
    };
    await routed(nodes);

    await t.step(
      "kube-relay is killed on every node, and starts again",
      async () => {
        const before = await Promise.all(nodes.map(sessionsOf));
        assertEquals(before.map(({ length }) => length), [1, 1, 1]);
        await load.losesNothing("kill -9 of kube-relay", async () => {
          await load.goOn(500);
          await first.relay.stop();
          for (const node of [second, third]) await node.relay.kill();
          await load.goOn(1_500);
          for (const node of nodes) await startRelay(node);
          for (const { relay } of nodes) {
            await relay.until(
              "BGP is in sync",
              ({ controllers = [] }) =>
                controllers.length > 0 &&
                controllers.every(({ families }) =>
                  families.every(({ lastSync, pending }) => lastSync && !pending)
                ),
            );
          }
          await routed(nodes);
        });
        assertEquals(await Promise.all(nodes.map(sessionsOf)), before, "sessions began again");
      },
    );

    await t.step("BIRD restarts gracefully on one node, and is killed on the others", async () => {
      await load.losesNothing("BIRD restarts on every node", async () => {
        await load.goOn(500);
        await first.bird.birdc("graceful restart");
        for (const { bird } of [second, third]) await bird.killBird();
        await first.bird.bird.status();
        await load.goOn(1_000);
        await Promise.all(nodes.map(({ bird }) => bird.startBird()));
        await eventually("no path is of a former session", async () => {
          const paths = await frr.paths(`${WEB}/32`);
          return paths.length === nodes.length && paths.every(({ stale }) => stale !== true);
        });
        await routed(nodes);
      });
    });

    await t.step("the API server is away, and kube-relay starts meanwhile", async () => {
      await load.losesNothing("the API server is away", async () => {
        await api.close();
        await load.goOn(1_000);
        await third.relay.kill();
        await startRelay(third);
        await third.relay.logged("API server");
        await load.goOn(5_000);
        await routed(nodes);
        await api.reopen();
        await third.relay.settled();
        await routed(nodes);
      });
    });

    // The last step: the goodbye of SIGTERM may end the API server.
    await t.step("SIGTERM withdraws in userspace mode, which then stops serving", async () => {
      await third.relay.kill();
      await startRelay(third, "userspace");
      await third.relay.settled();
      await routed(nodes);
      const loss = await load.during("SIGTERM", async (onEffect) => {
        await load.goOn(500);
        const ended = [first, third].map(({ relay }) => relay.stop());
        await routed([first, second]);
        onEffect();
        await Promise.all(ended);
        await load.goOn(500);
        // In nftables mode the rules go on serving.
        await routed([first, second]);
      });
      assertEquals(loss.servers, nodes.map(({ name }) => name));
      assertOnlyMoved(loss);
    });
  },
});
