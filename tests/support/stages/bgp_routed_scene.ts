/**
 * A cluster of which every node announces the Service `web` to two routers, FRR and gobgpd, each with a
 * client behind it. Sessions with FRR have BFD; gobgpd has none.
 *
 * @module
 */
import { eventually } from "../eventually.ts";
import { BgpLoad } from "./bgp_load.ts";
import {
  frrOfScene,
  type FrrRouter,
  GobgpFib,
  gobgpOfScene,
  type GobgpRouter,
} from "./bgp_routers.ts";
import { BgpScene, sceneNode, sceneService, sceneSlice } from "./bgp_scene.ts";
import type { SceneNode } from "./bgp_scene_node.ts";

/** The address of `web`. */
const WEB = "203.0.113.10";

/** The cluster. `web` has policy Local, a TCP and a UDP port, and an endpoint on every node. */
export class RoutedScene implements AsyncDisposable {
  readonly scene: BgpScene;
  readonly frr: FrrRouter;
  readonly gobgp: GobgpRouter;
  /** Clients behind FRR and gobgpd, in this order. */
  readonly load: BgpLoad;
  readonly web = sceneService("web", {
    ...{ clusterIP: "172.30.0.41", externalTrafficPolicy: "Local" },
  });
  #fib: GobgpFib | undefined;

  private constructor(scene: BgpScene, load: BgpLoad) {
    const nodes = scene.nodes.length;
    this.scene = scene;
    this.frr = scene.stage.frr(nodes + 1);
    this.gobgp = scene.stage.gobgp(nodes + 2);
    this.load = load;
  }

  /** Starts everything. Routes come a moment later: see {@linkcode routed}. */
  static async create(nodes: number): Promise<RoutedScene> {
    const scene = await BgpScene.create({ nodes, others: 2 });
    try {
      const clients = [await scene.attachClient(nodes + 1), await scene.attachClient(nodes + 2)];
      const routed = new RoutedScene(scene, BgpLoad.start(clients, WEB));
      await scene.routePods();
      await scene.startServers();
      await routed.#startRouters();
      await scene.api.write([
        ...scene.nodes.map((node) => sceneNode(node)),
        ...[routed.web, sceneSlice("web", scene.nodes)],
      ]);
      for (const node of scene.nodes) await routed.startRelay(node);
      await Promise.all(scene.nodes.map((node) => node.startBird()));
      return routed;
    } catch (error) {
      await scene[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #startRouters(): Promise<void> {
    const nodes = this.scene.nodes.length;
    await this.frr.start(frrOfScene(nodes));
    await this.gobgp.start(gobgpOfScene(nodes));
    this.#fib = new GobgpFib(this.gobgp);
  }

  /** Starts kube-relay on a node; a former one has to have ended. */
  async startRelay(node: SceneNode, { mode = "nftables" } = {}): Promise<void> {
    const nodes = this.scene.nodes.length;
    const settings = {
      localAs: 64_512,
      peers: [
        { name: "frr", address: `192.0.2.${nodes + 1}`, as: 64_513, bfd: true },
        { name: "gobgp", address: `192.0.2.${nodes + 2}`, as: 64_514 },
      ],
    };
    await node.startRelay({ bgp: settings, mode });
  }

  /** Waits until both routers send packets for an address to these nodes only. */
  async routed(
    nodes: readonly SceneNode[],
    { address = WEB }: { readonly address?: string } = {},
  ): Promise<void> {
    const wanted = `${nodes.map(({ name }) => name)}`;
    const { scene, frr, gobgp } = this;
    let found: readonly string[] = [];
    await eventually(`${address} by ${wanted}`, async () => {
      found = await Promise.all(
        [frr, gobgp].map(async ({ namespace }) => `${await scene.nodesAt(namespace, address)}`),
      );
      return found.every((each) => each === wanted);
    }).catch((cause) => {
      throw new Error(`${found.join("; ")}\n${scene.logs}`, { cause });
    });
  }

  /** As {@linkcode routed}, after an event. Resolves to the milliseconds since it. */
  async routedAfter(event: () => Promise<unknown>, nodes: readonly SceneNode[]): Promise<number> {
    const at = performance.now();
    await event();
    await this.routed(nodes);
    return Math.round(performance.now() - at);
  }

  /** Waits until both routers have paths of sessions that are established, and no former ones. */
  async fresh(): Promise<void> {
    const { frr, gobgp, scene } = this;
    await eventually("all paths are fresh", async () => {
      const paths = await frr.paths(`${WEB}/32`);
      const rib = await gobgp.gobgp("global rib -j");
      return paths.length === scene.nodes.length && paths.every(({ stale }) => stale !== true) &&
        !rib.includes('"stale":true');
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#fib?.[Symbol.asyncDispose]();
    await this.scene[Symbol.asyncDispose]();
  }
}
