/** How many requests are lost when a node that announces a Service fails. */
import { assert, assertEquals } from "@std/assert";
import { eventually } from "../support/eventually.ts";
import { isMissing, program } from "../support/requirement.ts";
import { printFigure } from "../support/stages/bgp_load.ts";
import { RoutedScene, WEB } from "../support/stages/bgp_routed_scene.ts";
import { bgpRequirements } from "../support/stages/bgp_stage.ts";

const ignore = isMissing("a cluster with BGP", [
  ...bgpRequirements(),
  program("nft"),
  program("socat"),
]);

/** On a busy machine the kernel itself may be late. */
const ATTEMPTS = 6;

Deno.test({
  name: "with BFD, a router stops using a failed node within a second",
  ignore,
  async fn(t) {
    await using routed = await RoutedScene.create({ nodes: 2, bfd: true });
    const { frr, scene } = routed;
    // gobgpd has no BFD.
    const load = routed.load.ofClient(0);
    const isReady = async () => {
      await routed.routed(scene.nodes);
      await eventually(
        "BFD is up",
        async () => [...(await frr.vtysh("show bfd peers brief")).matchAll(/ up /g)].length === 2,
      );
    };
    await isReady();

    await t.step("a restart of BIRD is no failure", async () => {
      await load.losesNothing("BIRD restarts, with BFD", async () => {
        await load.goOn(500);
        for (const { bird } of scene.nodes) await bird.killBird();
        // Longer than BFD needs.
        await load.goOn(1_000);
        await Promise.all(scene.nodes.map(({ bird }) => bird.startBird()));
        await routed.fresh();
        await isReady();
      });
    });

    await t.step("a node is unplugged", async () => {
      const figures: number[] = [];
      for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
        await isReady();
        const loss = await load.during("a node is unplugged", async (onEffect) => {
          await load.goOn(1_000);
          const at = performance.now();
          await scene.unplug(2);
          onEffect();
          await eventually(
            "the router does without it",
            async () => `${await scene.nodesAt(frr.namespace, WEB)}` === "node-1",
          );
          figures.push(Math.round(performance.now() - at));
          await load.goOn(2_000);
        });
        assert(loss.lostDatagrams > 0, "the load reaches the node that failed");
        // TCP repeats its first packet, and the router sends it to the other node. Connections that
        // were open on the node are lost with it.
        assertEquals(loss.lostAfterwards, 0, loss.examples.join("\n"));
        if (figures.at(-1)! < 1_000) break;
        await scene.plug(2);
      }
      printFigure(`a router did without the node after ${figures.join(", ")} ms`);
      assert(figures.some((ms) => ms < 1_000), `${figures} ms`);
    });
  },
});
