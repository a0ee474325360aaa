import { assertRejects, assertStringIncludes } from "@std/assert";
import { FakeBackend } from "../../../tests/support/fakes/fake_backend.ts";
import { testDump, testDumpParts } from "../../../tests/support/builders/test_dump.ts";
import { SILENT_LOGGER } from "../../log/silent_logger.ts";
import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";
import { systemClock } from "../../os/clock.ts";
import type { MachineFacts } from "../../proxy/service_mode.ts";
import { startControlServer } from "../control/control_server.ts";
import { DumpError } from "../dump/read_dump.ts";
import type { PlanNodeDependencies } from "./plan_objects.ts";
import { planRunningNode } from "./planned_node.ts";

/**
 * Plans the node behind a socket with these answers; `facts` receives the options of each backend.
 */
async function plan(
  answer: unknown,
  facts: (MachineFacts | undefined)[] = [],
  families: readonly IpFamily[] = IP_FAMILIES,
) {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/control.sock`;
  const server = await startControlServer({
    path,
    routes: answer === undefined ? {} : { "/dump": () => Promise.resolve(answer) },
  });
  const dependencies = {
    clock: systemClock,
    logger: SILENT_LOGGER,
    backends: {
      iptables: (_, options) => {
        facts.push(options.facts);
        return new FakeBackend();
      },
    },
  } satisfies Partial<PlanNodeDependencies>;
  const { relay } = testDumpParts().configuration;
  try {
    return await planRunningNode(dependencies as unknown as PlanNodeDependencies, {
      relay: { ...relay, controlSocket: path },
      families,
    });
  } finally {
    await server.stop();
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("planRunningNode() does not report a family as correct that the process does not serve", async () => {
  const error = await assertRejects(() => plan(JSON.parse(testDump()), [], ["IPv6"]), DumpError);
  assertStringIncludes(error.message, "Cannot plan IPv6 of the dump of kube-relay at '");
  assertStringIncludes(error.message, ": IPv4 is all that it serves");
});

Deno.test("planRunningNode() refuses two states of one family, and a second Node", async () => {
  const dump = JSON.parse(testDump());
  const { families: [family], objects } = dump;
  await assertRejects(
    () => plan({ ...dump, families: [family, family] }),
    DumpError,
    "at most once",
  );
  const nodes = [...objects.nodes, ...objects.nodes];
  await assertRejects(
    () => plan({ ...dump, objects: { ...objects, nodes } }),
    DumpError,
    "objects.nodes has to contain at most one Node, that of the dump: it contains 2",
  );
});

Deno.test("planRunningNode() refuses a configuration that no start would take", async () => {
  const dump = JSON.parse(testDump());
  dump.configuration.proxy.clusterCIDR = "10.0.0.0/99";
  await assertRejects(() => plan(dump), DumpError, "configuration.proxy.clusterCIDR");
});

Deno.test("planRunningNode() refuses a mode that this release has not", async () => {
  await assertRejects(
    () => plan({ ...JSON.parse(testDump()), mode: "ipvs" }),
    DumpError,
    "this release has iptables only",
  );
});
