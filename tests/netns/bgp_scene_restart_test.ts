/** A cluster with BGP while its parts restart, fail or are away: clients must not notice. */
import { assertEquals } from "@std/assert";
import { program, testNeeding } from "../support/requirement.ts";
import { eventually } from "../support/eventually.ts";
import { frrOfScene } from "../support/stages/bgp_routers.ts";
import { BgpScene, sceneNode, sceneService, sceneSlice } from "../support/stages/bgp_scene.ts";
import type { SceneNode } from "../support/stages/bgp_scene_node.ts";
import { bgpRequirements } from "../support/stages/bgp_stage.ts";
import { ProbeClient } from "../support/drivers/echo_network.ts";
import type { LoadReport, LoadTarget } from "../support/drivers/probe_protocol.ts";
import type { Namespace } from "../support/stages/netns.ts";

/** Requests a second of each client: half of them over TCP, half of them datagrams. */
const REQUESTS_PER_SECOND = 100;
/** A busy machine may delay a server; a lost datagram is never answered. */
const TIMEOUT_MS = 10_000;
/** The requests during an event. */
interface Loss {
  readonly requests: number;
  readonly lost: number;
  /** Those of them that were datagrams. */
  readonly lostDatagrams: number;
  /** Connections that began after the event had its effect, and were lost nevertheless. */
  readonly lostAfterwards: number;
  readonly examples: readonly string[];
  /** The servers that answered. */
  readonly servers: readonly string[];
}

/** Clients that send requests to one address. */
class BgpLoad {
  readonly #clients: readonly ProbeClient[];
  readonly #targets: readonly LoadTarget[];

  private constructor(clients: readonly ProbeClient[], targets: readonly LoadTarget[]) {
    this.#clients = clients;
    this.#targets = targets;
  }

  /** Starts a client in each namespace. */
  static start(namespaces: readonly Namespace[], address: string, port = 80): BgpLoad {
    const targets = (["TCP", "UDP"] as const).map((protocol) => ({
      ...{ protocol, address, port, expect: [] },
    }));
    return new BgpLoad(namespaces.map((each) => ProbeClient.start(each)), targets);
  }

  /**
   * Sends requests during an event, and prints what came of them. The event calls a function at the
   * moment from which no new connection may be lost.
   */
  async during(what: string, event: (onEffect: () => void) => Promise<unknown>): Promise<Loss> {
    const options = { perSecond: REQUESTS_PER_SECOND, timeoutMs: TIMEOUT_MS, sendsOnce: true };
    const start = performance.now();
    for (const client of this.#clients) await client.startLoad(this.#targets, options);
    let reports: readonly LoadReport[];
    let effectAfterMs = Infinity;
    try {
      await event(() => effectAfterMs = performance.now() - start);
    } finally {
      reports = await Promise.all(this.#clients.map((client) => client.stopLoad()));
    }
    const loss = lossOf(reports, effectAfterMs);
    const seconds = Math.max(...reports.map((report) => report.seconds));
    // deno-lint-ignore no-console -- the figures
    console.log(
      `${what}: ${loss.lost} of ${loss.requests} requests lost in ${seconds.toFixed(1)} s`,
    );
    return loss;
  }

  /** Lets the clients send requests for a time. */
  async goOn(ms: number): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, ms));
  }

  /** As {@linkcode during}; fails if a request was lost. */
  async losesNothing(what: string, event: () => Promise<unknown>): Promise<Loss> {
    const loss = await this.during(what, event);
    assertEquals(loss.lost, 0, loss.examples.join("\n"));
    return loss;
  }
}

/**
 * Fails if more was lost than connections that were open while routers moved them to another node. A
 * busy machine has many of them open.
 */
function assertOnlyMoved({ lostDatagrams, lostAfterwards, examples }: Loss): void {
  assertEquals(
    { lostDatagrams, lostAfterwards },
    { lostDatagrams: 0, lostAfterwards: 0 },
    examples.join("\n"),
  );
}

function lossOf(reports: readonly LoadReport[], effectAfterMs: number): Loss {
  const sum = (field: "attempts" | "failures") =>
    reports.reduce((total, report) => total + report[field], 0);
  const servers = reports.flatMap(({ byTarget }) =>
    Object.values(byTarget).flatMap((counts) => Object.keys(counts))
  );
  const failedAfterMs = (protocol: "TCP" | "UDP") =>
    reports.flatMap((report) => Object.entries(report.failedAfterMs))
      .flatMap(([target, times]) => target.startsWith(protocol) ? times : []);
  return {
    requests: sum("attempts"),
    lost: sum("failures"),
    lostDatagrams: failedAfterMs("UDP").length,
    lostAfterwards: failedAfterMs("TCP").filter((ms) => ms > effectAfterMs).length,
    examples: reports.flatMap(({ examples }) => examples),
    servers: [...new Set(servers)].sort(),
  };
}

const test = testNeeding("a cluster with BGP", [
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

test("no request is lost while kube-relay, BIRD or the API server restarts", async (t) => {
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
});
