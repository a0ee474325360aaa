import { assertRejects, assertStringIncludes } from "@std/assert";
import { testDump } from "../../../tests/support/builders/test_dump.ts";
import { configurationOf } from "../../../tests/support/drivers/own_flags.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import { eventually } from "../../../tests/support/eventually.ts";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { testDependencies } from "../../../tests/support/fakes/test_dependencies.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { DumpError } from "../dump/read_dump.ts";
import { planNode, readObjectsOnce } from "./plan_node.ts";

const DUMP = JSON.parse(testDump());
const { families: [FAMILY], objects: OBJECTS, configuration: CONFIGURATION } = DUMP;

const REFUSED: readonly (readonly [what: string, changes: object, says: string])[] = [
  ["two states of one family", { families: [FAMILY, FAMILY] }, "at most once"],
  [
    "a second Node",
    { objects: { ...OBJECTS, nodes: [...OBJECTS.nodes, ...OBJECTS.nodes] } },
    "objects.nodes has to contain at most one Node, that of the dump: it contains 2",
  ],
  [
    "a configuration that no start would take",
    { configuration: { ...CONFIGURATION, proxy: { clusterCIDR: "10.0.0.0/99" } } },
    "configuration.proxy.clusterCIDR",
  ],
  ["a mode that this release has not", { mode: "ipvs" }, "this release has iptables only"],
  ["a family that the process does not serve", {}, ": IPv4 is all that it serves"],
];

for (const [what, changes, says] of REFUSED) {
  Deno.test(`planNode() of a dump refuses ${what}`, () =>
    withFolder(async (folder) => {
      const from = `${folder}/dump.json`;
      await Deno.writeTextFile(from, JSON.stringify({ ...DUMP, ...changes }));
      const edges = testDependencies({ backends: { iptables: () => new FakeBackend() } });
      const flags = { from, family: says.includes("serves") ? "ipv6" : "ipv4" };
      const configuration = await configurationOf([]);
      const planning = planNode({ ...edges, logger: new MemoryLogger() }, { flags, configuration });
      const { message } = await assertRejects(() => planning, DumpError, says);
      assertStringIncludes(message, `of dump '${from}'`.slice(3));
    }));
}

for (
  const [flag, kubeconfig, says] of [
    ["--master=URL", undefined, "Cannot list objects within 30 s: "],
    ["--master=URL", "/no/kubeconfig", "/no/kubeconfig"],
  ] as const
) {
  Deno.test(`readObjectsOnce() gives up an API server, and says why: ${says}`, async () => {
    const clock = new FakeClock();
    const url = `http://127.0.0.1:${unusedPort()}`;
    let failure: unknown;
    const reading = readObjectsOnce(
      { ...testDependencies({ clock }), logger: new MemoryLogger() },
      {
        configuration: await configurationOf([flag.replace("URL", url)]),
        nodeName: "node-a",
        ...(kubeconfig && { kubeconfig }),
      },
    ).catch((error) => failure = error);
    await eventually("the reading ends", async () => {
      await clock.advance(1_000);
      return failure !== undefined;
    });
    await reading;
    assertStringIncludes(`${failure}`, says);
    if (!kubeconfig) assertStringIncludes(`${failure}`, url);
  });
}
