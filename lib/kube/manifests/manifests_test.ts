import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import { eventually } from "../../../tests/support/eventually.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { FakeManifestFiles } from "../../../tests/support/fakes/fake_manifest_files.ts";
import {
  letPass,
  ManifestHarness,
  SEEN_MS,
  serviceYaml,
  settledUntil,
  withManifests,
} from "../../../tests/support/stages/manifest_harness.ts";
import { type Clock, systemClock } from "../../os/clock.ts";

const WEB_1 = serviceYaml("web", "10.0.0.1");
const WEB_2 = serviceYaml("web", "10.0.0.2");
const DB = serviceYaml("db", "10.0.0.9");

Deno.test("run() reports only real differences, and keeps the identity of unchanged objects", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${DB}` }, async (started) => {
    const { files, harness: { informers } } = started;
    informers.take();
    const db = informers.services.get("default/db");
    files.write("m/a.yaml", `# a comment\n${WEB_2}---\n${DB}`);
    await letPass(started, SEEN_MS);
    assertEquals(informers.take(), ["~Service default/web"]);
    assertStrictEquals(informers.services.get("default/db"), db);
    files.write("m/a.yaml", `${DB}---\n${WEB_2}`);
    await letPass(started, SEEN_MS);
    assertEquals(informers.take(), []);
    files.write("m/a.yaml", WEB_2);
    await letPass(started, SEEN_MS);
    assertEquals(informers.take(), ["-Service default/db"]);
  });
});

Deno.test("run() uses the first of two objects of one name in a file", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${WEB_2}` }, ({ harness }) => {
    assertEquals(harness.informers.clusterIp("web"), "10.0.0.1");
    assertEquals(harness.problems, [
      "m/a.yaml:9:1: Service default/web: is repeated in this file; the one of line 1 is used",
    ]);
    return Promise.resolve();
  });
});

Deno.test("run() moves an object between files without deleting it", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${DB}`, "m/b.yaml": "" }, async (started) => {
    const { files, harness } = started;
    harness.informers.take();
    files.write("m/a.yaml", WEB_1);
    files.write("m/b.yaml", DB);
    await letPass(started, SEEN_MS);
    assertEquals(harness.informers.take(), []);
    assertEquals(harness.source.status().map(({ path, objects }) => [path, objects]), [
      ["m/a.yaml", 1],
      ["m/b.yaml", 1],
    ]);
  });
});

Deno.test("run() treats a file as deleted or empty only after a moment", async () => {
  await withManifests({ "m/a.yaml": WEB_1, "m/b.yaml": DB }, async (started) => {
    const { files, harness } = started;
    harness.informers.take();
    files.remove("m/a.yaml");
    files.write("m/b.yaml", " \n");
    await letPass(started, 1_250);
    assertEquals(harness.informers.take(), []);
    files.write("m/a.yaml", WEB_2);
    files.write("m/b.yaml", DB);
    await letPass(started, 2_000);
    assertEquals(harness.informers.take(), ["~Service default/web"]);
    files.remove("m/a.yaml");
    files.write("m/b.yaml", "");
    await letPass(started, SEEN_MS);
    await letPass(started, 300);
    assertEquals(harness.informers.take(), ["-Service default/web", "-Service default/db"]);
    assertEquals(harness.source.status().map(({ path, objects }) => [path, objects]), [
      ["m/b.yaml", 0],
    ]);
  });
});

Deno.test("run() reads a file once it stays as it is, or a second after it began to change", async () => {
  await withManifests({ "m/a.yaml": WEB_1 }, async (started) => {
    const { files, harness } = started;
    for (let step = 0; step < 25; step++) {
      files.write("m/a.yaml", step % 2 === 0 ? WEB_2.slice(0, -10) : WEB_2);
      await letPass(started, 50);
      if (step < 19) assertEquals(files.reads.get("m/a.yaml"), 1, `step ${step}`);
    }
    files.write("m/a.yaml", WEB_2);
    await letPass(started, SEEN_MS);
    assertEquals(harness.informers.clusterIp("web"), "10.0.0.2");
    assert(files.reads.get("m/a.yaml")! <= 4, "it is not read at each step");
  });
});

Deno.test("run() keeps the known objects of unreadable files and folders", async () => {
  await withManifests({ "m/a.yaml": WEB_1 }, async (started) => {
    const { files, harness } = started;
    harness.informers.take();
    files.forbidden.add("m");
    await letPass(started, 30_000);
    assertEquals(harness.informers.take(), []);
    assertEquals(harness.problems.length, 1);
    files.forbidden.clear();
    files.forbidden.add("m/a.yaml");
    await letPass(started, 30_000);
    assertEquals(harness.informers.take(), []);
    assertEquals(harness.problems, [
      "m/a.yaml:1:1: Cannot read manifest: no permission for m/a.yaml",
    ]);
    const said = harness.logger.lines.filter(({ level }) => level === "error");
    assertEquals(said.length, 1);
    files.forbidden.clear();
    await letPass(started, 10_000);
    assertEquals(harness.problems, []);
    assertEquals(harness.source.status()[0]!.stale, false);
  });
});

/** Names in a folder that are not those of a manifest: mostly the leftovers of editors. */
const OTHERS = [
  ...[".a.yaml", ".a.yaml.swp", "a.yaml~", "4913", "#a.yaml#", "#a.yaml", ".#a.yaml", "a.yaml.new"],
  ...["README.md", "yaml", "..data"],
];

Deno.test("run() reads only changed files, of all paths, that have the name of a manifest", async () => {
  const named = ["a.yaml", "a.yml", "A.JSON", "a.v1.yaml", "a\nb.yaml"].map((name) => `m/${name}`);
  const contents = { ...Object.fromEntries(named.map((path) => [path, ""])), other: WEB_1 };
  await withManifests(contents, async (started) => {
    const { files } = started;
    for (const name of OTHERS) files.write(`m/${name}`, "spec: ]");
    files.write("other", WEB_2);
    await letPass(started, SEEN_MS);
    const expected = [...named.map((path) => [path, 1] as const), ["other", 2] as const];
    assertEquals<unknown>([...files.reads].sort(), expected.sort());
  }, ["other", "m", "m/a.yaml"]);
});

/** An EndpointSlice of a Service, as YAML. */
function sliceYaml(service: string): string {
  return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n" +
    `  name: ${service}-1\n  labels: {kubernetes.io/service-name: ${service}}\n` +
    "addressType: IPv4\nendpoints: [{addresses: [10.0.1.1]}]\nports: [{port: 80}]\n";
}

Deno.test("run() publishes read objects while another file is slow, and deletes nothing before", async () => {
  const clock = new FakeClock();
  const files = new FakeManifestFiles("m");
  const slow = Promise.withResolvers<void>();
  files.slow.set("m/slow.yaml", slow.promise);
  files.write("m/slow.yaml", DB);
  files.write("m/web.yaml", `${WEB_1}---\n${sliceYaml("web")}`);
  files.write("m/bare.yaml", serviceYaml("bare", "10.0.0.7"));
  await using harness = new ManifestHarness(clock, files, "m");
  const { informers, logger } = harness;
  await letPass({ clock }, SEEN_MS);
  assertEquals(informers.take(), ["+EndpointSlice default/web-1", "+Service default/web"]);
  files.write("m/web.yaml", `${WEB_2}---\n${sliceYaml("web")}`);
  await letPass({ clock }, 2 * SEEN_MS);
  assertEquals(informers.take(), ["~Service default/web"], "changes of others are seen");
  files.remove("m/web.yaml");
  await letPass({ clock }, 10_000);
  assertEquals([informers.take(), informers.services.synced], [[], false]);
  const warnings = logger.lines.filter(({ message }) => message.includes("still being read"));
  assertEquals(warnings.map(({ fields }) => fields["files"]), [["m/slow.yaml"]]);
  slow.resolve();
  await letPass({ clock }, SEEN_MS);
  assertEquals(informers.services.synced, true);
  assertEquals(informers.take(), [
    "+Service default/bare",
    "+Service default/db",
    "-Service default/web",
    "-EndpointSlice default/web-1",
  ]);
});

Deno.test("run() reads each of 25,000 files once, and leaves the event loop free meanwhile", async () => {
  const files = new FakeManifestFiles(".", "m");
  const services = 25_000;
  for (let index = 0; index < services; index++) {
    const address = `10.${index >> 16}.${(index >> 8) & 255}.${index & 255}`;
    files.write(`m/${index}.yaml`, serviceYaml(`web-${index}`, address));
  }
  // Counts reads between two turns of the event loop, instead of time.
  const readUntil: number[] = [0];
  const clock: Clock = {
    ...systemClock,
    yieldToEventLoop() {
      readUntil.push(files.reads.size);
      return systemClock.yieldToEventLoop();
    },
  };
  await using harness = new ManifestHarness(clock, files, "m");
  await eventually("all files are read", () => harness.informers.services.synced, {
    deadlineMs: 120_000,
  });
  assertEquals([files.reads.size, harness.informers.services.size], [services, services]);
  assertEquals([...files.reads.values()].filter((count) => count > 1), []);
  const most = Math.max(...readUntil.slice(1).map((count, index) => count - readUntil[index]!));
  assert(most <= services / 25, `${most} files in one turn`);
});

Deno.test("status() shows a thousand of very many files, those with problems among them", async () => {
  const clock = new FakeClock();
  const files = new FakeManifestFiles(".", "m");
  for (let index = 0; index < 1_500; index++) {
    files.write(
      `m/${index}.yaml`,
      serviceYaml(`web-${index}`, `10.0.${index >> 8}.${index & 255}`),
    );
  }
  for (const name of ["0", "700", "1499"]) files.write(`m/${name}.yaml`, "kind: [\n");
  await using harness = new ManifestHarness(clock, files, "m", "gone");
  await settledUntil(clock, () => harness.informers.services.synced);
  const shown = harness.source.status();
  assertEquals([shown.length, harness.source.filesNotShown], [1_000, 501]);
  assertEquals(shown.filter(({ problems }) => problems.length > 0).map(({ path }) => path), [
    "gone",
    "m/0.yaml",
    "m/1499.yaml",
    "m/700.yaml",
  ]);
});

Deno.test("status() shows files with errors before a thousand with warnings, and all of them if asked", async () => {
  const clock = new FakeClock();
  const files = new FakeManifestFiles(".", "m");
  for (let index = 0; index < 1_100; index++) {
    const warned = serviceYaml(`web-${index}`, `10.0.${index >> 8}.${index & 255}`);
    files.write(`m/${index}.yaml`, index === 999 ? "kind: [\n" : `${warned}other: x\n`);
  }
  await using harness = new ManifestHarness(clock, files, "m");
  await settledUntil(clock, () => harness.informers.services.synced);
  const { source } = harness;
  assertEquals(source.status().length, 1_000);
  assertEquals(source.status(1).map(({ path }) => path), ["m/999.yaml"]);
  assertEquals(source.status(Infinity).length, 1_100);
});

Deno.test("run() ends while a file system hangs", async () => {
  const clock = new FakeClock();
  const files = new FakeManifestFiles("m");
  files.slow.set("m/a.yaml", new Promise(() => {}));
  files.write("m/a.yaml", WEB_1);
  const harness = new ManifestHarness(clock, files, "m");
  await letPass({ clock }, SEEN_MS);
  const ended = harness[Symbol.asyncDispose]();
  await letPass({ clock }, 1_000);
  await ended;
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("run() ends when nothing is read any more", async () => {
  const clock = new FakeClock();
  const files = new FakeManifestFiles("m");
  const reading = Promise.withResolvers<void>();
  files.slow.set("m/a.yaml", reading.promise);
  files.write("m/a.yaml", WEB_1);
  const harness = new ManifestHarness(clock, files, "m");
  await letPass({ clock }, SEEN_MS);
  let hasEnded = false;
  const ended = harness[Symbol.asyncDispose]().then(() => hasEnded = true);
  await clock.advance(0);
  assertEquals(hasEnded, false);
  reading.resolve();
  await ended;
  assertEquals(clock.pendingTimers, 0);
});

Deno.test("run() notices a change soon on a machine that is too busy for quick looks", async () => {
  await withManifests({ "m/a.yaml": WEB_1 }, async (started) => {
    const { clock, files, harness: { informers } } = started;
    const stat = files.stat.bind(files);
    files.stat = (path) => {
      clock.stall(200);
      return stat(path);
    };
    for (const address of ["10.0.0.2", "10.0.0.3", "10.0.0.4"]) {
      files.write("m/a.yaml", serviceYaml("web", address));
      await letPass(started, 5_000);
      assertEquals(informers.clusterIp("web"), address);
    }
  });
});
