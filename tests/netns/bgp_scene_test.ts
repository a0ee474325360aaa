/** A cluster that announces Services to two routers, with clients that count lost requests. */
import { assert, assertEquals } from "@std/assert";
import { isMissing, program } from "../support/requirement.ts";
import { assertOnlyMoved, printFigure } from "../support/stages/bgp_load.ts";
import { RoutedScene } from "../support/stages/bgp_routed_scene.ts";
import { sceneNode, sceneService, sceneSlice } from "../support/stages/bgp_scene.ts";
import { bgpRequirements } from "../support/stages/bgp_stage.ts";

const ignore = isMissing("a cluster with BGP", [
  ...bgpRequirements(),
  program("nft"),
  program("socat"),
]);

/** On a busy machine the kernel itself may be late. */
const ATTEMPTS = 6;

Deno.test({
  name: "routers send requests to the nodes that may serve them, and to no other node",
  ignore,
  async fn(t) {
    await using routed = await RoutedScene.create(3);
    const { scene, load, web } = routed;
    const { nodes: [first, second, third], nodes, api } = scene;
    const two = [first!, second!];

    await t.step("every node announces a Service with an endpoint on every node", async () => {
      await routed.routed(nodes);
      const { servers } = await load.losesNothing("nothing happens", () => load.goOn(2_000));
      assertEquals(servers, nodes.map(({ name }) => name));
    });

    await t.step("with policy Cluster, the nodes without an endpoint announce it too", async () => {
      await api.write([
        sceneService("shop", { clusterIP: "172.30.0.42" }),
        sceneSlice("shop", [first!]),
      ]);
      await routed.routed(nodes, { address: "203.0.113.11" });
    });

    await t.step("policy Local: the last ready endpoint of a node terminates", async () => {
      const figures: number[] = [];
      for (let attempt = 1; attempt <= ATTEMPTS; attempt++) {
        const loss = await load.during("the endpoint of a node terminates", async (onEffect) => {
          await load.goOn(500);
          const leave = () => api.write([sceneSlice("web", two, [third!])]);
          figures.push(await routed.routedAfter(leave, two));
          onEffect();
          await load.goOn(500);
        });
        assertOnlyMoved(loss);
        await api.write([sceneSlice("web", nodes)]);
        await routed.routed(nodes);
        if (figures.at(-1)! < 1_000) break;
      }
      printFigure(`withdrawn after the last ready endpoint: ${figures.join(", ")} ms`);
      assert(figures.some((ms) => ms < 1_000), `${figures} ms`);
    });

    await t.step("a node is excluded from load balancers, and comes back", async () => {
      const labels = { "node.kubernetes.io/exclude-from-external-load-balancers": "" };
      const loss = await load.during("a node is excluded", async (onEffect) => {
        await load.goOn(500);
        const exclude = () => api.write([sceneNode(third!, { labels })]);
        printFigure(`withdrawn after the label: ${await routed.routedAfter(exclude, two)} ms`);
        onEffect();
        await load.goOn(500);
      });
      assertOnlyMoved(loss);
      await routed.routed(two, { address: "203.0.113.11" });
      await api.write([sceneNode(third!)]);
      await routed.routed(nodes);
    });

    await t.step("the Service is deleted", async () => {
      const remove = () => api.write([], { deleted: [web, sceneSlice("web", nodes)] });
      printFigure(`withdrawn after the deletion: ${await routed.routedAfter(remove, [])} ms`);
      await routed.routed(nodes, { address: "203.0.113.11" });
    });
  },
});
