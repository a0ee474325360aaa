/** Tests a client with a real API server that refuses everything at first, or loses its etcd. */
import { assertEquals } from "@std/assert";
import { systemClock } from "../../lib/os/clock.ts";
import { type ApiMachinery, startApiMachinery } from "../support/stages/api_machinery.ts";
import { eventually } from "../support/eventually.ts";
import { Follower } from "./follower.ts";
import { tokenAuth } from "./machinery_auth.ts";
import { testNode, withLabels } from "./test_objects.ts";
import { testService } from "./test_service.ts";

const OUTAGE_MS = 5000;

/** What an API server refuses until it has loaded its RBAC data. */
const EVERYTHING = ["services", "endpointslices", "endpoints", "nodes", "servicecidrs"];

/** Defines the tests. */
export function defineOutageTests(program: string): void {
  Deno.test("ApiSource follows Node and ServiceCIDRs soon after a server that refused everything at first", async () => {
    await using server = await startApiMachinery({ program, forbiddenResources: EVERYTHING });
    await server.create(testNode("node-1"));
    await using follower = new Follower({ auth: tokenAuth(server), nodeName: "node-1" });
    await follower.refused("Service", "Node", "ServiceCIDR");
    await server.forbid([]);
    await follower.watches("Service", "Node", "ServiceCIDR");
    assertEquals(follower.events, ["add Node node-1"]);
  });

  Deno.test("ApiSource follows on, without churn, after a restarted server that refused everything at first", async () => {
    await using server = await startApiMachinery({ program });
    await server.create(testNode("node-1"));
    await using follower = await new Follower({ auth: tokenAuth(server), nodeName: "node-1" })
      .synced();
    follower.events.length = 0;
    await server.killApi();
    await server.forbid(EVERYTHING);
    await server.restartApi();
    await follower.refused("Service", "Node", "ServiceCIDR");
    await server.forbid([]);
    await server.update(withLabels(testNode("node-1"), { zone: "a" }));
    await eventually("it sees the Node", () => follower.events.length > 0);
    assertEquals(follower.events, ["update Node node-1"]);
  });

  Deno.test("ApiSource requests what the server lacked for long again when it comes back", async () => {
    await using server = await startApiMachinery({ program, forbiddenResources: ["nodes"] });
    await server.create(testNode("node-1"));
    await using follower = await new Follower({
      auth: tokenAuth(server),
      nodeName: "node-1",
      timing: { refusalPatienceMs: 0 },
    }).synced();
    await follower.refused("Node");
    await server.killApi();
    await server.forbid([]);
    await server.restartApi();
    await follower.watches("Service", "Node");
    assertEquals(follower.events, ["add Node node-1"]);
  });

  for (const [name, run] of Object.entries(OUTAGES)) {
    Deno.test(name, async () => {
      await using server = await startApiMachinery({ program });
      for (const letter of "abcde") await server.create(testService(letter, `10.0.0.1`));
      await using follower = await new Follower({ auth: tokenAuth(server) }).synced();
      assertEquals(follower.informers.services.size, 5);
      follower.events.length = 0;
      await run(server, follower);
    });
  }
}

type Outage = (server: ApiMachinery, follower: Follower) => Promise<void>;

const OUTAGES: Readonly<Record<string, Outage>> = {
  "ApiSource follows on, without churn, after etcd was killed and restarted": async (
    server,
    follower,
  ) => {
    await server.killEtcd();
    await systemClock.sleep(OUTAGE_MS);
    assertEquals(follower.informers.services.size, 5);
    await server.restartEtcd();
    await untilWritable(server);
    await server.update(testService("c", "10.0.0.2"));
    await follower.sees("c", "10.0.0.2");
    assertEquals(follower.events, ["update Service default/c"]);
  },

  "ApiSource follows on after etcd was restored from a backup: the server's version has gone back":
    async (server, follower) => {
      await server.backUpEtcd();
      await untilWritable(server);
      await server.create(testService("f", "10.0.0.3"));
      for (let count = 0; count < 20; count++) await server.update(testService("c", "10.0.0.2"));
      await follower.sees("f", "10.0.0.3");
      await follower.sees("c", "10.0.0.2");
      await server.killApi();
      await server.restoreEtcd();
      await server.restartApi();
      await follower.sees("c", "10.0.0.1");
      await follower.sees("f", undefined);
      await server.update(testService("d", "10.0.0.4"));
      await follower.sees("d", "10.0.0.4");
      assertEquals(follower.informers.services.size, 5);
    },
};

/** An API server that lost its etcd reconnects only now and then. */
async function untilWritable(server: ApiMachinery): Promise<void> {
  await eventually("the API server can write again", () => server.admin.ready(), {
    deadlineMs: 30_000,
  });
}
