/** Five nodes that route the ranges of their pods by sessions with each other. */
import { assertEquals } from "@std/assert";
import { eventually } from "../support/eventually.ts";
import { program, testNeeding } from "../support/requirement.ts";
import { BgpScene, sceneNode } from "../support/stages/bgp_scene.ts";
import type { SceneNode } from "../support/stages/bgp_scene_node.ts";
import { bgpRequirements } from "../support/stages/bgp_stage.ts";

const test = testNeeding("a cluster with a BGP mesh", [
  ...bgpRequirements(),
  program("nft"),
  program("socat"),
]);

const NODES = 5;
/** The cluster ID of the reflectors. */
const CLUSTER_ID = "42";

/** The names of nodes with which a node has a session that is up. */
async function neighborsOf(node: SceneNode): Promise<readonly string[]> {
  const peers = await node.peers();
  return peers.filter((line) => line.includes("established since"))
    .map((line) => /^node_(.*)_v4 /.exec(line)?.[1]?.replace("_", "-") ?? line).sort();
}

/** The ranges of pods that the kernel of a node has from BIRD, each with its next hop. */
async function rangesOf({ namespace }: SceneNode): Promise<readonly string[]> {
  const lines = (await namespace.ip("route show proto bird")).split("\n");
  return lines.flatMap((line) => /^(\S+ via \S+)/.exec(line)?.[1] ?? []).sort();
}

/** The pods that answer a pod. */
async function answersTo({ pod }: SceneNode, nodes: readonly SceneNode[]) {
  const asks = nodes.map(({ podAddress }) =>
    `socat -u TCP:${podAddress}:8080,connect-timeout=5 - || echo none`
  );
  return (await pod.output("sh", ["-c", asks.join("\n")])).trim().split("\n");
}

test("nodes learn the ranges of pods from each other, in a full mesh and by two reflectors", async (t) => {
  await using scene = await BgpScene.create({ nodes: NODES });
  const { api, nodes } = scene;
  for (const { pod, name } of nodes) {
    pod.start("socat", ["TCP-LISTEN:8080,fork,reuseaddr", `SYSTEM:echo ${name}`]);
  }
  await api.write(nodes.map((node) => sceneNode(node)));
  const namesOf = (some: readonly SceneNode[]) => some.map(({ name }) => name);
  /** Waits until each node has these sessions, and returns their number. */
  const connected = async (wantedBy: (node: SceneNode) => readonly SceneNode[]) => {
    let ends = 0;
    for (const node of nodes) {
      const wanted = namesOf(wantedBy(node));
      ends += wanted.length;
      await eventually(
        `sessions of ${node.name} with ${wanted}`,
        async () => `${await neighborsOf(node)}` === `${wanted}`,
      ).catch((cause) => {
        throw new Error(`${node.relay.log}`, { cause });
      });
    }
    return ends / 2;
  };
  const others = (node: SceneNode) => nodes.filter((other) => other !== node);
  const reachable = async (some = nodes) => {
    for (const node of some) {
      const wanted = some.filter((other) => other !== node).map(({ podCidr, address }) =>
        `${podCidr} via ${address}`
      );
      await eventually(
        `the ranges on ${node.name}`,
        async () => `${await rangesOf(node)}` === `${wanted}`,
      );
    }
    for (const node of some) assertEquals(await answersTo(node, some), namesOf(some));
  };

  await t.step("every node has a session with every other node", async () => {
    assertEquals(await answersTo(nodes[0]!, nodes.slice(1)), others(nodes[0]!).map(() => "none"));
    await scene.startNodes(() => ({ bgp: { localAs: 64_512, mesh: true } }));
    const sessions = await connected(others);
    await reachable();
    assertEquals(sessions, 10);
  });

  await t.step("two nodes become reflectors, and the others their clients", async () => {
    const reflectors = nodes.slice(0, 2);
    const annotate = (node: SceneNode) => ({
      annotations: {
        [`kube-router.io/rr.${reflectors.includes(node) ? "server" : "client"}`]: CLUSTER_ID,
      },
    });
    await api.write(nodes.map((node) => sceneNode(node, annotate(node))));
    const sessions = await connected((node) =>
      reflectors.includes(node) ? others(node) : reflectors
    );
    await reachable();
    assertEquals(sessions, 7);
  });

  await t.step("one reflector ends", async () => {
    const [reflector, ...rest] = nodes;
    reflector!.bird.bird.signal("SIGTERM");
    await reachable(rest);
  });
});
