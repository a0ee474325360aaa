/**
 * Tests the client of the API server: on the fake by `fake_test.ts` and on the real API machinery
 * by `apiserver_test.ts`. If the two differ, the fake is wrong.
 */
import { assert, assertEquals } from "@std/assert";
import type { Service } from "../../lib/api/kinds/service.ts";
import { loadKubeAuth } from "../../lib/kube/kubeconfig.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { eventually } from "../support/eventually.ts";
import {
  type KubeconfigUser,
  replaceFile,
  writeKubeconfig,
} from "../support/builders/kubeconfig_file.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { TcpRelay } from "../support/drivers/tcp_relay.ts";
import { runChurn } from "./churn.ts";
import { Follower, type FollowerOptions } from "./follower.ts";
import type { ConformanceServer, StartConformanceServer } from "./server.ts";
import { testEndpointSlice, testNode, withLabels } from "./test_objects.ts";
import { testService } from "./test_service.ts";

type SuiteOptions = Pick<FollowerOptions, "protobuf">;

/** Defines the suite for one kind of server; each case has a server of its own. */
export function runConformanceSuite(
  name: string,
  start: StartConformanceServer,
  options: SuiteOptions = {},
): void {
  for (const [sentence, run] of Object.entries(CASES)) {
    Deno.test(`${sentence} (${name})`, async () => {
      // Timers of connections that go down keep no event loop alive, and a stage may wait for one.
      const timer = setInterval(() => {}, 1000);
      try {
        await using stage = await Stage.start(start, options);
        await run(stage);
      } finally {
        clearInterval(timer);
      }
    });
  }
}

/** A server, the network in front of it, and a client's files. */
class Stage implements AsyncDisposable {
  private constructor(
    readonly server: ConformanceServer,
    readonly relay: TcpRelay,
    readonly folder: string,
    readonly options: SuiteOptions,
  ) {}

  static async start(start: StartConformanceServer, options: SuiteOptions): Promise<Stage> {
    const server = await start();
    const relay = await TcpRelay.start(Number(new URL(server.url).port));
    const folder = await Deno.makeTempDir({ prefix: "kube-relay-suite-" });
    return new Stage(server, relay, folder, options);
  }

  /** A client behind the relay, that has listed everything. */
  async follow(
    { user, ...options }: Omit<FollowerOptions, "auth"> & { readonly user?: KubeconfigUser } = {},
  ): Promise<Follower> {
    const kubeconfig = `${this.folder}/kubeconfig`;
    await writeKubeconfig(kubeconfig, {
      server: `https://127.0.0.1:${this.relay.port}`,
      ca: this.server.ca,
      user: user ?? { tokenFile: await this.writeToken(this.server.token()) },
    });
    const auth = await loadKubeAuth(
      { clock: systemClock, logger: new MemoryLogger() },
      { kubeconfig, env: () => undefined },
    );
    const follower = await new Follower({ auth, ...this.options, ...options }).synced();
    follower.events.length = 0;
    return follower;
  }

  async writeToken(token: string): Promise<string> {
    await replaceFile(`${this.folder}/token`, token);
    return `${this.folder}/token`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.relay[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    await Deno.remove(this.folder, { recursive: true });
  }
}

function serviceOf({ informers }: Follower, name: string): Service | undefined {
  return informers.services.get(`default/${name}`);
}

const CASES: Readonly<Record<string, (stage: Stage) => Promise<void>>> = {
  "ApiSource delivers what is created, updated and deleted": async (stage) => {
    await using follower = await stage.follow();
    await stage.server.create(testService("web"));
    await follower.sees("web", "10.0.0.1");
    await stage.server.update(testService("web", "10.0.0.2"));
    await follower.sees("web", "10.0.0.2");
    await stage.server.delete(testService("web"));
    await follower.sees("web", undefined);
    assertEquals(follower.events, [
      "add Service default/web",
      "update Service default/web",
      "delete Service default/web",
    ]);
  },

  "ApiSource sees only what is meant for it, and a Service leave and come back": async (stage) => {
    const { server } = stage;
    const otherProxy = { "service.kubernetes.io/service-proxy-name": "other" };
    await server.create(testService("web"));
    await server.create(testService("headless", "None"));
    await server.create(withLabels(testService("other"), otherProxy));
    await server.create(testEndpointSlice("web-1"));
    const headless = { "service.kubernetes.io/headless": "" };
    await server.create(withLabels(testEndpointSlice("db-1"), headless));
    for (const name of ["node-1", "node-2"]) await server.create(testNode(name));
    await using follower = await stage.follow({ nodeName: "node-1" });
    assertEquals([...follower.informers.nodes.values()].map((node) => node.metadata.name), [
      "node-1",
    ]);
    assertEquals(follower.informers.endpointSlices.size, 1);
    const unseen = server.capabilities.clusterIpSelector ? ["other", "headless"] : ["other"];
    for (const name of unseen) assertEquals(serviceOf(follower, name), undefined);
    await server.update(withLabels(testService("web"), otherProxy));
    await follower.sees("web", undefined);
    await server.update(testService("web"));
    await follower.sees("web", "10.0.0.1");
    assertEquals(follower.events, ["delete Service default/web", "add Service default/web"]);
  },

  "ApiSource follows labels and taints of its Node, its end and its return": async (stage) => {
    const { server } = stage;
    const [own, other] = [testNode("node-1"), testNode("node-2")];
    for (const node of [own, other]) await server.create(node);
    await using follower = await stage.follow({ nodeName: "node-1" });
    const { nodes } = follower.informers;
    const seen = () => nodes.get("node-1");
    const zone = { "topology.kubernetes.io/zone": "zone-a" };
    const taints = [{ key: "ToBeDeletedByClusterAutoscaler", effect: "NoSchedule" }];
    await server.update(withLabels(other, zone));
    await server.update(withLabels(own, zone));
    const zoneOf = () => seen()?.metadata.labels?.["topology.kubernetes.io/zone"];
    await eventually("the zone is seen", () => zoneOf() === "zone-a");
    await server.update({ ...own, spec: { taints } });
    await eventually("the taint is seen", () => seen()?.spec.taints?.[0]?.key === taints[0]!.key);
    assertEquals(zoneOf(), undefined);
    await server.delete(own);
    await eventually("its end is seen", () => seen() === undefined);
    await server.create(own);
    await eventually("its return is seen", () => seen() !== undefined);
    assertEquals(seen()?.spec.taints ?? [], []);
    const what = ["update", "update", "delete", "add"];
    assertEquals(follower.events, what.map((word) => `${word} Node node-1`));
  },

  "ApiSource reads a list in pages, and watches on from where it ends": async (stage) => {
    const services = Array.from({ length: 1201 }, (_, index) => testService(`web-${index}`));
    for (let at = 0; at < services.length; at += 50) {
      await Promise.all(services.slice(at, at + 50).map((each) => stage.server.create(each)));
    }
    await using follower = await stage.follow({ streamingLists: false });
    for (const { metadata } of services) assert(serviceOf(follower, metadata.name));
    await stage.server.update(testService("web-7", "10.0.0.2"));
    await follower.sees("web-7", "10.0.0.2");
    assertEquals(follower.events, ["update Service default/web-7"]);
  },

  "ApiSource goes on from its version when the server ends a watch at its time": async (stage) => {
    await stage.server.create(testService("web"));
    await using follower = await stage.follow({ timing: { minWatchSeconds: 1 } });
    for (const address of ["10.0.0.2", "10.0.0.3", "10.0.0.4"]) {
      await systemClock.sleep(700);
      await stage.server.update(testService("web", address));
      await follower.sees("web", address);
    }
    assertEquals(follower.events.length, 3);
    assertEquals(follower.following("Service")?.relists, 0);
    assertEquals(follower.following("Service")?.watchFailures, 0);
  },

  "ApiSource goes on without a new list after FIN and after RST": async (stage) => {
    await stage.server.create(testService("web"));
    await using follower = await stage.follow();
    for (const [cut, address] of [["closeOpen", "10.0.0.2"], ["resetOpen", "10.0.0.3"]] as const) {
      const before = stage.relay.accepted;
      stage.relay[cut]();
      await stage.server.update(testService("web", address));
      await follower.sees("web", address);
      assert(stage.relay.accepted > before, "a new connection was made");
    }
    assertEquals(follower.events.length, 2);
    assertEquals(follower.following("Service")?.relists, 0);
  },

  "ApiSource replaces a connection that swallows everything": async (stage) => {
    await stage.server.create(testService("web"));
    await using follower = await stage.follow();
    stage.relay.freezeOpen();
    await stage.server.update(testService("web", "10.0.0.2"));
    await follower.sees("web", "10.0.0.2");
    assertEquals(follower.events, ["update Service default/web"]);
    assertEquals(follower.following("Service")?.relists, 0);
    await eventually("the dead connection is closed", () => stage.relay.open === 1);
  },

  "ApiSource keeps what it knows while every packet is swallowed, and catches up": async (
    stage,
  ) => {
    await stage.server.create(testService("web"));
    await using follower = await stage.follow({ timing: { connectTimeoutMs: 300 } });
    stage.relay.swallowNew(true);
    stage.relay.freezeOpen();
    await follower.fails("no answer within 300 ms");
    assertEquals(follower.events, []);
    assert(serviceOf(follower, "web"));
    await stage.server.update(testService("web", "10.0.0.2"));
    stage.relay.swallowNew(false);
    await follower.sees("web", "10.0.0.2");
    assertEquals(follower.events, ["update Service default/web"]);
  },

  "ApiSource keeps what it knows while the server is dead, and catches up": async (stage) => {
    await stage.server.create(testService("web"));
    await using follower = await stage.follow();
    await stage.server.killApi();
    await follower.logs("Lost the connection to the API server; known objects stay in use");
    assert(serviceOf(follower, "web"));
    await stage.server.restartApi();
    await stage.server.update(testService("web", "10.0.0.2"));
    await follower.sees("web", "10.0.0.2");
    assertEquals(follower.events, ["update Service default/web"]);
  },

  "ApiSource relists without churn when its version was forgotten": async (stage) => {
    for (const name of ["a", "b", "c"]) await stage.server.create(testService(name));
    await using follower = await stage.follow({ timing: { connectTimeoutMs: 300 } });
    stage.relay.swallowNew(true);
    stage.relay.freezeOpen();
    await stage.server.delete(testService("a"));
    await stage.server.update(testService("b", "10.0.0.2"));
    await stage.server.create(testService("d"));
    await stage.server.compact();
    stage.relay.swallowNew(false);
    await follower.sees("a", undefined);
    assertEquals(follower.events.toSorted(), [
      "add Service default/d",
      "delete Service default/a",
      "update Service default/b",
    ]);
    assertEquals(follower.following("Service")?.relists, 1);
  },

  "ApiSource takes the new token from its file when the former one is refused": async (stage) => {
    await stage.server.create(testService("web"));
    await using follower = await stage.follow();
    const token = await stage.server.rotateToken();
    await stage.server.killApi();
    await stage.server.restartApi();
    await follower.fails("401");
    assertEquals(follower.events, []);
    await stage.writeToken(token);
    await stage.server.update(testService("web", "10.0.0.2"));
    await follower.sees("web", "10.0.0.2");
    assertEquals(follower.events, ["update Service default/web"]);
  },

  "ApiSource has what the server has after many changes and broken connections": async (stage) => {
    await using follower = await stage.follow();
    await runChurn(stage, follower);
  },
};
