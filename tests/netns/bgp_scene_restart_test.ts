/** A cluster with BGP while its parts restart, fail or are away: clients must not notice. */
import { assertEquals } from "@std/assert";
import { isMissing, program } from "../support/requirement.ts";
import { assertOnlyMoved } from "../support/stages/bgp_load.ts";
import { RoutedScene } from "../support/stages/bgp_routed_scene.ts";
import type { SceneNode } from "../support/stages/bgp_scene_node.ts";
import { bgpRequirements } from "../support/stages/bgp_stage.ts";

const ignore = isMissing("a cluster with BGP", [
  ...bgpRequirements(),
  program("nft"),
  program("socat"),
]);

/** When the sessions of a node began, as BIRD has it. */
async function sessionsOf({ bird }: SceneNode): Promise<readonly string[]> {
  const lines = (await bird.birdc("show protocols")).split("\n");
  return lines.filter((line) => line.startsWith("peer_") && line.includes("Established"));
}

Deno.test({
  name: "no request is lost while kube-relay, BIRD or the API server restarts",
  ignore,
  async fn(t) {
    await using routed = await RoutedScene.create(3);
    const { scene, load } = routed;
    const { api, nodes } = scene;
    const [first, second, third] = nodes as [SceneNode, SceneNode, SceneNode];
    await routed.routed(nodes);

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
          for (const node of nodes) await routed.startRelay(node);
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
          await routed.routed(nodes);
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
        await routed.fresh();
        await routed.routed(nodes);
      });
    });

    await t.step("the API server is away, and kube-relay starts meanwhile", async () => {
      await load.losesNothing("the API server is away", async () => {
        await api.close();
        await load.goOn(1_000);
        await third.relay.kill();
        await routed.startRelay(third);
        await third.relay.logged("API server");
        await load.goOn(5_000);
        await routed.routed(nodes);
        await api.reopen();
        await third.relay.settled();
        await routed.routed(nodes);
      });
    });

    // The last step: the goodbye of SIGTERM may end the API server.
    await t.step("SIGTERM withdraws in userspace mode, which then stops serving", async () => {
      await third.relay.kill();
      await routed.startRelay(third, { mode: "userspace" });
      await third.relay.settled();
      await routed.routed(nodes);
      const loss = await load.during("SIGTERM", async (onEffect) => {
        await load.goOn(500);
        const ended = [first, third].map(({ relay }) => relay.stop());
        await routed.routed([first, second]);
        onEffect();
        await Promise.all(ended);
        await load.goOn(500);
        // In nftables mode the rules go on serving.
        await routed.routed([first, second]);
      });
      assertEquals(loss.servers, nodes.map(({ name }) => name));
      assertOnlyMoved(loss);
    });
  },
});
