/** Tests routes between pods by the whole program, with real packets. Tunnels are tested in UML. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { PodNetworkDataPlane } from "../../backends/announce/pod_network/data_plane.ts";
import type { RoutedNode } from "../../lib/api/kinds/routed_node.ts";
import {
  CommandError,
  type CommandRunner,
  systemCommandRunner,
} from "../../lib/os/command_runner.ts";
import { planPodNetwork, type PodNetworkPlan } from "../../lib/routing/pod_network_plan.ts";
import { systemClock } from "../../lib/os/clock.ts";
import { routingNodeOf } from "../../lib/routing/routing_node.ts";
import type { RelayProcess } from "../support/stages/relay_process.ts";
import { SILENCE_MS, startEchoServer } from "../support/drivers/echo_network.ts";
import { MemoryLogger } from "../support/fakes/memory_logger.ts";
import { eventually } from "../support/eventually.ts";
import { isMissing, program, testNeeding } from "../support/requirement.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { createPodScene, ECHO_PORT, type PodNode } from "../support/stages/pod_scene.ts";

const test = testNeeding("the network of pods", [...netnsRequirements(), program("nft")]);

/** What the parts of the network of pods cannot do, by name. */
async function problems(relay: RelayProcess): Promise<Readonly<Record<string, string>>> {
  const { controllers = [] } = await relay.status();
  const items = controllers.flatMap(({ families }) => families)
    .flatMap(({ quarantined }) => quarantined);
  return Object.fromEntries(items.map(({ key, reason }) => [key, reason]));
}

/** Commands in the namespace of a node. */
function commandsIn({ namespace }: PodNode): CommandRunner {
  return {
    run: (tool, args, options) =>
      systemCommandRunner.run("ip", ["netns", "exec", namespace.name, tool, ...args], options),
  };
}

function planeOf(commands: CommandRunner): PodNetworkDataPlane {
  const edges = { clock: systemClock, commands, logger: new MemoryLogger() };
  return new PodNetworkDataPlane(edges, { cniFiles: [] });
}

/** The plan of the first node. */
function planOf(scene: readonly PodNode[], { masquerade = true } = {}): PodNetworkPlan {
  const nodes = scene.map((node) => routingNodeOf(node.raw() as unknown as RoutedNode));
  return planPodNetwork({
    settings: { routes: true, overlay: "off", portMappings: true, masquerade },
    ...{ own: nodes[0]!, nodes, networks: [], clusterCidrs: [] },
  });
}

function startAll(nodes: readonly PodNode[]): RelayProcess[] {
  return nodes.map((node) =>
    node.start(["--mode=nftables", "--pod-routes", `--cni-config=${node.cniConfig}`])
  );
}

test("pods of nodes in one subnet reach each other, also while kube-relay is killed and restarts", async (t) => {
  await using scene = await createPodScene([2, 2]);
  const [a, b] = scene.nodes as [PodNode, PodNode];
  await scene.write([a.raw(), b.raw()]);
  assertEquals(
    await a.seenBy(b.podAddresses[0], "TCP", SILENCE_MS),
    "silent",
    "before there are routes",
  );
  const [relay, other] = startAll(scene.nodes) as [RelayProcess, RelayProcess];
  await t.step("routes lead to the other node", async () => {
    for (const each of scene.nodes) {
      await eventually("both routes", async () => (await each.routes()).length === 2).catch(
        (cause) => {
          throw new Error(relay.log, { cause });
        },
      );
    }
    assertStringIncludes(
      (await a.routes())[0]!,
      "10.180.2.0/24 via 192.0.2.2 dev eth0 metric 256",
    );
  });
  await t.step("a pod sees the address of the other pod, in both families", async () => {
    for (const [index, address] of b.podAddresses.entries()) {
      assertEquals(await a.seenBy(address), a.podAddresses[index]);
    }
  });
  await t.step("outside of the cluster, a pod has the address of its node", async () => {
    await eventually("masquerade", async () => await a.seenBy("192.0.2.254") === a.addresses[0]);
    assertEquals(await a.seenBy("fd00:2::fe"), a.addresses[1]);
  });
  await t.step("the address of another node sees the pod itself", async () => {
    await using _server = await listenOnNode(b);
    assertEquals(await a.seenBy(b.addresses[0]), a.podAddresses[0]);
  });
  await t.step("the CNI configuration has the ranges of the node", async () => {
    const { name, plugins } = JSON.parse(await Deno.readTextFile(a.cniConfig));
    assertEquals([name, plugins[0].ipMasq, plugins[0].mtu], ["kube-relay", false, 1500]);
    assertEquals(plugins[0].ipam.ranges.flat().map(({ subnet }: { subnet: string }) => subnet), [
      ...a.podCidrs,
    ]);
  });
  await t.step("kill -9 and a start lose no packet", async () => {
    let [isRunning, sent, lost] = [true, 0, 0];
    const target = { protocol: "UDP", address: b.podAddresses[0], port: ECHO_PORT } as const;
    const sending = (async () => {
      while (isRunning) {
        sent++;
        if (await a.client.who(target, SILENCE_MS) !== "node-b") lost++;
      }
    })();
    await relay.kill();
    await using again = startAll([a])[0]!;
    await again.until(
      "it has synced",
      ({ controllers }) => controllers?.[0]?.families.every(({ lastSync }) => lastSync) === true,
    );
    isRunning = false;
    await sending;
    assert(sent > 50, `${sent} sent`);
    assertEquals(lost, 0, `of ${sent}`);
  });
  await relay.kill();
  await other.kill();
});

/** An echo server at the addresses of a node. */
async function listenOnNode(node: PodNode): Promise<AsyncDisposable> {
  const server = await startEchoServer(node.namespace, {
    name: "node",
    listen: [{ address: node.addresses[0], port: ECHO_PORT }],
  });
  return { [Symbol.asyncDispose]: async () => void await server.kill() };
}

test("a bad Node, a changed range, a removed node and the cleanup touch only their own routes", async (t) => {
  await using scene = await createPodScene([2, 2]);
  const [a, b] = scene.nodes as [PodNode, PodNode];
  await scene.write([a.raw(), b.raw()]);
  const args = ["--mode=nftables", "--pod-routes"];
  const start = (cniConfig: string) => a.start([...args, `--cni-config=${cniConfig}`]);
  const relay = start(a.cniConfig);
  const routesAre = (what: string, ...destinations: string[]) =>
    eventually(what, async () => {
      const found = (await a.routes()).map((line) => line.split(" ")[0]);
      return `${found}` === `${destinations}`;
    });
  await routesAre("both routes", ...b.podCidrs);
  const third = (name: string, range: string, address: string) => ({
    ...b.raw([range]),
    metadata: { name },
    status: { addresses: [{ type: "InternalIP", address }] },
  });
  await t.step("ranges that cannot be right are reported; others are routed", async () => {
    await scene.write([
      ...[a.raw(), b.raw(), third("good", "10.180.9.0/24", "192.0.2.9")],
      third("text", "10.180.300.0/24", "192.0.2.10"),
      third("everything", "0.0.0.0/0", "192.0.2.11"),
      third("mine", "10.180.0.0/16", "192.0.2.12"),
      third("nodes", "192.0.0.0/16", "192.0.2.13"),
      third("same", "10.180.2.0/24", "192.0.2.14"),
      third("far", "10.180.20.0/24", "198.51.100.1"),
    ]);
    await routesAre("the good one too", b.podCidrs[0]!, "10.180.9.0/24", b.podCidrs[1]!);
    const found = await eventually("all problems", async () => {
      const found = await problems(relay);
      return Object.keys(found).length === 5 ? found : undefined;
    });
    assertStringIncludes(found["Node text"]!, "'10.180.300.0/24' is no CIDR");
    assertStringIncludes(found["Node everything"]!, "contains every address");
    assertStringIncludes(found["Node mine"]!, "overlaps 10.180.1.0/24 of this Node");
    assertStringIncludes(found["Node nodes"]!, "contains the address of a Node");
    assertStringIncludes(found["Node same"]!, "belongs to Node node-b too");
    const { controllers = [] } = await relay.status();
    assertStringIncludes(
      JSON.stringify(controllers[0]!.facts),
      "far: 10.180.20.0/24 is in another subnet",
    );
  });
  await t.step("a changed range of another node moves its route", async () => {
    await scene.write([a.raw(), b.raw(["10.180.7.0/24"])]);
    await routesAre("the new one only", "10.180.7.0/24");
  });
  await t.step("a changed range of the own node is in the CNI configuration", async () => {
    await scene.write([a.raw(["10.180.5.0/24"]), b.raw()]);
    await eventually(
      "the new range",
      async () => (await Deno.readTextFile(a.cniConfig)).includes("10.180.5.0/24"),
    );
    await routesAre("both of node-b again", ...b.podCidrs);
  });
  await t.step("routes that another program removed come back with the next sync", async () => {
    await a.namespace.ip("route flush table main proto 75");
    await scene.write([a.raw(), b.raw()]);
    await routesAre("both", ...b.podCidrs);
  });
  await t.step("a removed node has no route", async () => {
    await scene.write([a.raw()]);
    await routesAre("none");
    await scene.write([a.raw(), b.raw()]);
    await routesAre("both", ...b.podCidrs);
  });
  await relay.kill();

  await t.step("a foreign CNI configuration and a bad folder are reported", async () => {
    const foreign = `${a.folder}/foreign.conflist`;
    await Deno.writeTextFile(foreign, '{"name":"cbr0"}');
    for (
      const [path, reason] of [
        [foreign, "kube-relay did not write it"],
        [
          `${foreign}/x.conflist`,
          `Cannot read CNI configuration ${foreign}/x.conflist: Not a dir`,
        ],
      ] as const
    ) {
      await using again = start(path);
      await eventually(
        reason,
        async () =>
          (await problems(again).catch(() => ({}) as never))["CNI configuration"]
            ?.includes(reason),
      ).catch((cause) => {
        throw new Error(again.log, { cause });
      });
      await routesAre("both stay", ...b.podCidrs);
    }
    assertEquals(await Deno.readTextFile(foreign), '{"name":"cbr0"}');
  });
  await t.step("the cleanup removes all that is ours", async () => {
    await a.namespace.ip("route add 10.180.99.0/24 via 192.0.2.2");
    const text = await a.cleanUp();
    assertStringIncludes(text, "route 10.180.2.0/24 to pods");
    assertStringIncludes(text, a.cniConfig);
    assertEquals(await a.routes(), []);
    assertStringIncludes(await a.namespace.ip("route show"), "10.180.99.0/24");
    assertEquals(await Deno.stat(a.cniConfig).catch(() => undefined), undefined);
    assertEquals(await a.namespace.output("nft", ["list", "tables"]), "");
  });
});

for (const variant of ["nft", "legacy"]) {
  Deno.test({
    name: `without nft, iptables-${variant} masquerades what leaves the cluster`,
    ignore: isMissing("masquerade by iptables", [
      ...netnsRequirements(),
      program(`iptables-${variant}`),
    ]),
    async fn() {
      await using scene = await createPodScene([2, 2]);
      const [a, b] = scene.nodes as [PodNode, PodNode];
      const inside = commandsIn(a);
      await using plane = planeOf({
        run(tool, args, options) {
          if (tool === "nft") {
            return Promise.reject(new CommandError(tool, args, "not-found", "there is no nft"));
          }
          const named = tool.replace(/^(ip6?tables)(?!-nft|-legacy)/, `$1-${variant}`);
          return inside.run(named, args, options);
        },
      });
      const plan = planOf(scene.nodes);
      const { quarantined, operations } = await plane.sync(plan);
      assertEquals(quarantined, []);
      assertEquals(operations["tables"], 1);
      assertEquals(await a.seenBy("192.0.2.254"), a.addresses[0]);
      assertEquals(await a.seenBy("fd00:2::fe"), a.addresses[1]);
      await b.namespace.ip("route add 10.180.1.0/24 via 192.0.2.1");
      assertEquals(await a.seenBy(b.podAddresses[0]), a.podAddresses[0]);
      assertEquals((await plane.sync(plan)).operations, {}, "nothing is written again");
      await a.namespace.output(`iptables-${variant}`, ["-t", "nat", "-F", "POSTROUTING"]);
      assertEquals((await plane.sync(plan)).operations, { tables: 1 }, "the jump comes back");
      const { removed, failed } = await plane.cleanup();
      assertEquals([removed.filter((each) => each.includes("iptables")).length, failed], [2, []]);
      const rules = await a.namespace.output(`iptables-${variant}-save`, ["-t", "nat"]);
      assert(!rules.includes("KUBE-RELAY"), rules);
    },
  });
}

test("routes come back when a link went down and up, not only with the next look at the machine", async () => {
  await using scene = await createPodScene([2, 2]);
  const [a, b] = scene.nodes as [PodNode, PodNode];
  await scene.write([a.raw(), b.raw()]);
  await using relay = startAll([a])[0]!;
  const bothAre = (what: string) =>
    eventually(what, async () => (await a.routes()).length === 2, { deadlineMs: 30_000 }).catch(
      (cause) => {
        throw new Error(relay.log, { cause });
      },
    );
  await bothAre("both routes");
  // Syncs of the start may still follow one time.
  for (let time = 1; time <= 3; time++) {
    // The kernel drops the addresses of IPv6, too. The networks are the same afterwards.
    await a.namespace.ipBatch([
      "link set eth0 down",
      "link set eth0 up",
      `addr replace ${a.addresses[1]}/64 dev eth0 nodad`,
    ]);
    await bothAre(`both routes again, long before a minute is over, time ${time}`);
  }
});

test("a route of another program that comes first is reported with its properties, and stays", async () => {
  await using scene = await createPodScene([2, 2]);
  const [a, b] = scene.nodes as [PodNode, PodNode];
  await using plane = planeOf(commandsIn(a));
  const plan = planOf(scene.nodes);
  assertEquals((await plane.sync(plan)).quarantined, []);
  assertEquals(await plane.compare(plan), []);
  const [four, six] = b.podCidrs as [string, string];
  const first = "another program's route comes first:";
  const foreign = [
    {
      add: `route add ${four} via 192.0.2.254 proto 17`,
      cidr: four,
      found: `${first} ${four} via 192.0.2.254 (protocol 17, metric 0, table main)`,
    },
    {
      add: `-6 route add ${six} via fd00:2::fe proto 17 metric 20`,
      cidr: six,
      found: `${first} ${six} via fd00:2::fe (protocol 17, metric 20, table main)`,
    },
    {
      add: `route add blackhole ${four} proto 17`,
      cidr: four,
      found: `${first} no packets: RTNETLINK answers: Invalid argument`,
    },
    {
      add: `route add 10.180.2.0/25 via 192.0.2.254`,
      cidr: four,
      found: `${first} 10.180.2.0/25 via 192.0.2.254 (metric 0, table main)`,
    },
    {
      add: `route add default via 192.0.2.254 table 77`,
      also: `rule add to ${four} lookup 77`,
      cidr: four,
      found: `${first} default via 192.0.2.254 (metric 0, table 77)`,
    },
  ];
  for (const { add, also, cidr, found } of foreign) {
    await a.namespace.ip(add);
    if (also !== undefined) await a.namespace.ip(also);
    assertEquals(await plane.compare(plan), [
      { object: "pod route", name: cidr, kind: "altered", found },
    ]);
    const { quarantined, operations } = await plane.sync(plan);
    const reason = `packets to ${cidr} do not take the route to the node: ${found}. Remove it`;
    assertEquals(quarantined, [{ key: "Node node-b", reason }]);
    assertEquals(operations, {}, "it is not overwritten");
    if (also !== undefined) await a.namespace.ip(also.replace("add", "del"));
    await a.namespace.ip(add.replace("add", "del"));
    assertEquals((await plane.sync(plan)).quarantined, []);
  }
});

test("an own route with another metric or type is replaced, and no second one stays", async () => {
  await using scene = await createPodScene([2, 2]);
  const [a, b] = scene.nodes as [PodNode, PodNode];
  await using plane = planeOf(commandsIn(a));
  const plan = planOf(scene.nodes);
  await plane.sync(plan);
  const wanted = await a.routes();
  const [four, six] = b.podCidrs as [string, string];
  for (
    const lines of [
      [`route add ${four} via 192.0.2.2 proto 75 metric 99`],
      [`-6 route add ${six} via fd00:2::2 proto 75 metric 99`],
      [
        `route del ${four} proto 75`,
        `route add ${four} via 192.0.2.2 proto 75 metric 99`,
      ],
      [`route del ${four} proto 75`, `route add blackhole ${four} proto 75 metric 256`],
    ]
  ) {
    for (const line of lines) await a.namespace.ip(line);
    const found = await plane.compare(plan);
    assert(found.length > 0, `${lines} is no difference`);
    assertEquals((await plane.sync(plan)).quarantined, []);
    assertEquals(await a.routes(), wanted, `${lines}`);
    assertEquals(await plane.compare(plan), []);
  }
});
