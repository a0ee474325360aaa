/**
 * A cluster of which every node announces the Service `web` to a router that runs FRR, with a client
 * behind it.
 *
 * @module
 */
import { eventually } from "../eventually.ts";
import { BgpLoad } from "./bgp_load.ts";
import { frrOfScene, type FrrRouter } from "./bgp_routers.ts";
import { BgpScene, sceneNode, sceneService, sceneSlice } from "./bgp_scene.ts";
import type { SceneNode } from "./bgp_scene_node.ts";

/** The address of `web`. */
const WEB = "203.0.113.10";

/**
 * The cluster. `web` has policy Local, a TCP and a UDP port, and an endpoint on every node. Sessions have
 * BFD.
 */
export class RoutedScene implements AsyncDisposable {
  readonly scene: BgpScene;
  readonly load: BgpLoad;
  readonly #frr: FrrRouter;

  private constructor(scene: BgpScene, load: BgpLoad) {
    this.scene = scene;
    this.#frr = scene.stage.frr(scene.nodes.length + 1);
    this.load = load;
  }

  /** Starts everything. Routes come a moment later: see {@linkcode routed}. */
  static async create(nodes: number): Promise<RoutedScene> {
    const scene = await BgpScene.create({ nodes, others: 1 });
    try {
      const client = await scene.attachClient(nodes + 1);
      const routed = new RoutedScene(scene, BgpLoad.start([client], WEB));
      await scene.routePods();
      await scene.startServers();
      await routed.#frr.start(frrOfScene(nodes));
      await scene.api.write([
        ...scene.nodes.map((node) => sceneNode(node)),
        sceneService("web", { clusterIP: "172.30.0.41", externalTrafficPolicy: "Local" }),
        sceneSlice("web", scene.nodes),
      ]);
      for (const node of scene.nodes) await routed.startRelay(node);
      await Promise.all(scene.nodes.map((node) => node.startBird()));
      return routed;
    } catch (error) {
      await scene[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Starts kube-relay on a node; a former one has to have ended. */
  async startRelay(node: SceneNode, { mode = "nftables" } = {}): Promise<void> {
    const address = `192.0.2.${this.scene.nodes.length + 1}`;
    const peers = [{ name: "frr", address, as: 64_513, bfd: true }];
    await node.startRelay({ bgp: { localAs: 64_512, peers }, mode });
  }

  /** Waits until the router sends packets for `web` to these nodes only. */
  async routed(nodes: readonly SceneNode[]): Promise<void> {
    const wanted = `${nodes.map(({ name }) => name)}`;
    let found = "";
    await eventually(`${WEB} by ${wanted}`, async () => {
      found = `${await this.scene.nodesAt(this.#frr.namespace, WEB)}`;
      return found === wanted;
    }).catch((cause) => {
      throw new Error(`${found}\n${this.scene.logs}`, { cause });
    });
  }

  /** Waits until the router has paths of sessions that are established, and no former ones. */
  async fresh(): Promise<void> {
    await eventually("all paths are fresh", async () => {
      const paths = await this.#frr.paths(`${WEB}/32`);
      return paths.length === this.scene.nodes.length &&
        paths.every(({ stale }) => stale !== true);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.scene[Symbol.asyncDispose]();
  }
}
