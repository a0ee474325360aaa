import { SERVICE } from "../../api/kinds/service.ts";
import { assert, assertEquals, assertRejects } from "@std/assert";
import { eventually } from "../../../tests/support/eventually.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { unusedPort } from "../../../tests/support/drivers/unused_port.ts";
import type { LoadedConfiguration } from "../../config/load.ts";
import type { Dependencies } from "../../app/dependencies.ts";
import { readObjectsOnce } from "./read_objects_once.ts";
import { testDependencies } from "../../../tests/support/fakes/test_dependencies.ts";
import { configurationOf } from "../../../tests/support/drivers/own_flags.ts";

const SERVICE_TEXT = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n" +
  "  clusterIP: 10.96.0.1\n  ports: [{port: 80}]\n";

function load(argv: readonly string[]): Promise<LoadedConfiguration> {
  return configurationOf(argv, { readTextFile: () => Promise.resolve("") });
}

function createDependencies(clock: FakeClock): Dependencies {
  return testDependencies({ clock, process: { hostname: "node-a" } });
}

async function read(argv: readonly string[], { clock }: { readonly clock: FakeClock }) {
  return await readObjectsOnce(
    { ...createDependencies(clock), logger: new MemoryLogger() },
    { configuration: await load(argv), nodeName: "node-a" },
  );
}

Deno.test("readObjectsOnce() reads the current manifests, and leaves no watch behind", async () => {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${folder}/web.yaml`, SERVICE_TEXT);
    await Deno.writeTextFile(`${folder}/bad.yaml`, "kind: [\n");
    const clock = new FakeClock();
    const { informers, problems, isIncomplete } = await read([`--manifests=${folder}`], { clock });
    assertEquals([...informers.of(SERVICE).values()].map(({ metadata }) => metadata.name), ["web"]);
    assertEquals([problems.length, isIncomplete, clock.pendingTimers], [1, true, 0]);
    assert(problems[0]!.startsWith(`${folder}/bad.yaml:`), problems[0]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("readObjectsOnce() refuses a path that leads nowhere: it would be a cluster without Services", async () => {
  await assertRejects(
    () => read(["--manifests=/does/not/exist"], { clock: new FakeClock() }),
    Error,
    "Cannot read manifests of '/does/not/exist': there is no such file or folder",
  );
});

Deno.test("readObjectsOnce() gives up an API server that does not answer, and gives the reason", async () => {
  const clock = new FakeClock();
  const url = `http://127.0.0.1:${unusedPort()}`;
  let failure: unknown;
  const reading = read([`--master=${url}`], { clock }).catch((error) => failure = error);
  await eventually("the reading ends", async () => {
    await clock.advance(1_000);
    return failure !== undefined;
  });
  await reading;
  assert(failure instanceof Error);
  assert(failure.message.startsWith("Cannot list objects within 30 s: "), failure.message);
  assert(failure.message.includes(url), failure.message);
  assertEquals(clock.pendingTimers, 0);
});
