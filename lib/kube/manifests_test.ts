import { assert, assertEquals, assertStrictEquals } from "@std/assert";
import { FakeClock } from "../../tests/support/fake_clock.ts";
import { FakeManifestFiles } from "../../tests/support/fake_manifest_files.ts";
import { ManifestHarness, serviceYaml } from "../../tests/support/manifest_harness.ts";

const WEB_1 = serviceYaml("web", "10.0.0.1");
const WEB_2 = serviceYaml("web", "10.0.0.2");
const DB = serviceYaml("db", "10.0.0.9");

interface Started {
  readonly clock: FakeClock;
  readonly files: FakeManifestFiles;
  readonly harness: ManifestHarness;
}

/** Runs a test on folder `m` with these files in it, once they have been read. */
async function withManifests(
  contents: Readonly<Record<string, string>>,
  test: (started: Started) => Promise<void>,
  paths = ["m"],
): Promise<void> {
  const clock = new FakeClock();
  const files = new FakeManifestFiles(".", "m");
  for (const [path, text] of Object.entries(contents)) files.write(path, text);
  await using harness = new ManifestHarness(clock, files, ...paths);
  await until(clock, () => harness.informers.services.synced);
  await test({ clock, files, harness });
}

/** Lets promises settle, without time passing, until something is true. */
async function until(clock: FakeClock, isTrue: () => boolean): Promise<void> {
  for (let turn = 0; turn < 1000; turn++) {
    if (isTrue()) return;
    await clock.advance(0);
  }
  throw new Error("did not come true");
}

/** Lets a change be seen, read and published. */
async function pass({ clock }: Started, ms: number): Promise<void> {
  await clock.advance(ms);
  for (let turn = 0; turn < 20; turn++) await clock.advance(0);
}

Deno.test("createManifestSource() does nothing until it is run, and resolves when aborted", async () => {
  const clock = new FakeClock();
  const files = new FakeManifestFiles("m");
  {
    await using _ = new ManifestHarness(clock, files, "m");
    await until(clock, () => files.watched.length === 1);
  }
  assertEquals([files.watched.length, clock.pendingTimers], [0, 0]);
});

Deno.test("run() feeds all informers and counts them as synced", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${DB}` }, ({ harness }) => {
    assertEquals(harness.informers.take(), ["+Service default/web", "+Service default/db"]);
    const { services, endpointSlices, endpoints, nodes, serviceCidrs } = harness.informers;
    for (const informer of [services, endpointSlices, endpoints, nodes, serviceCidrs]) {
      assert(informer.synced);
    }
    return Promise.resolve();
  });
});

Deno.test("run() counts as synced with nothing to read, and reads what appears later", async () => {
  await withManifests({}, async (started) => {
    const { files, harness } = started;
    assertEquals(harness.problems, [
      "later.yaml:1:1: Cannot read manifest: there is no such file or folder; it is read once there is one",
      "n:1:1: Cannot read manifest: there is no such file or folder; it is read once there is one",
    ]);
    files.write("./later.yaml", WEB_1);
    files.write("later.yaml", WEB_1);
    await pass(started, 50);
    assertEquals(harness.informers.take(), ["+Service default/web"]);
    files.addFolder("n");
    files.write("n/db.yaml", DB);
    await pass(started, 10_000);
    assertEquals(harness.informers.take(), ["+Service default/db"]);
    assertEquals(harness.problems, []);
  }, ["later.yaml", "n"]);
});

Deno.test("run() tells of real differences only and keeps the identity of what did not change", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${DB}` }, async (started) => {
    const { files, harness: { informers } } = started;
    informers.take();
    const db = informers.services.get("default/db");
    files.write("m/a.yaml", `# a comment\n${WEB_2}---\n${DB}`);
    await pass(started, 50);
    assertEquals(informers.take(), ["~Service default/web"]);
    assertStrictEquals(informers.services.get("default/db"), db);
    files.write("m/a.yaml", `${DB}---\n${WEB_2}`);
    await pass(started, 50);
    assertEquals(informers.take(), []);
    files.write("m/a.yaml", WEB_2);
    await pass(started, 50);
    assertEquals(informers.take(), ["-Service default/db"]);
  });
});

Deno.test("run() keeps the last good content of a file with a syntax error, and says where it is", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${DB}` }, async (started) => {
    const { files, harness, clock } = started;
    const goodAt = clock.wallNow();
    harness.informers.take();
    files.write("m/a.yaml", `${WEB_2}---\nspec: ]\n`);
    await pass(started, 50);
    assertEquals(harness.informers.take(), []);
    const [status] = harness.source.status();
    assertEquals([status!.objects, status!.stale, status!.lastGoodAtMs], [2, true, goodAt]);
    assertEquals([status!.problems[0]!.line, status!.problems[0]!.column], [10, 7]);
    const line = harness.logger.lines.find(({ level }) => level === "error");
    assertEquals(line?.message, "Cannot use a part of the manifests");
    assertEquals([line?.fields["file"], line?.fields["line"]], ["m/a.yaml", 10]);
    files.write("m/a.yaml", WEB_2);
    await pass(started, 50);
    assertEquals(harness.informers.take(), ["~Service default/web", "-Service default/db"]);
    assertEquals(harness.source.status()[0]!.stale, false);
  });
});

Deno.test("run() takes what can be read of a file that is broken from the start", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\nspec: ]\n` }, ({ harness }) => {
    assertEquals(harness.informers.take(), ["+Service default/web"]);
    const [status] = harness.source.status();
    assertEquals([status!.stale, status!.lastGoodAtMs], [true, undefined]);
    return Promise.resolve();
  });
});

Deno.test("run() keeps the last good version of a bad object and updates the others", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${DB}` }, async (started) => {
    const { files, harness } = started;
    harness.informers.take();
    const bad = serviceYaml("db", "10.0.0.8").replace("port: 80", "port: 0");
    files.write("m/a.yaml", `${WEB_2}---\n${bad}`);
    await pass(started, 50);
    assertEquals(harness.informers.take(), ["~Service default/web"]);
    assertEquals(harness.informers.clusterIp("db"), "10.0.0.9");
    assertEquals(harness.problems, [
      "m/a.yaml:17:7: Service default/db: spec.ports[0].port is 0: " +
      "has to be a whole number between 1 and 65535",
    ]);
  });
});

Deno.test("run() keeps what a file no longer names while an object in it has no name", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${DB}` }, async (started) => {
    const { files, harness } = started;
    harness.informers.take();
    files.write("m/a.yaml", `${WEB_1}---\n${DB.replace("  name: db", "  nmae: db")}`);
    await pass(started, 50);
    assertEquals(harness.informers.take(), []);
    files.write("m/a.yaml", WEB_1);
    await pass(started, 50);
    assertEquals(harness.informers.take(), ["-Service default/db"]);
  });
});

Deno.test("run() takes an object of two files from the first by path, and from the other once that goes", async () => {
  await withManifests({ "m/b.yaml": WEB_2, "m/a.yaml": WEB_1 }, async (started) => {
    const { files, harness } = started;
    assertEquals(harness.informers.take(), ["+Service default/web"]);
    assertEquals(harness.informers.clusterIp("web"), "10.0.0.1");
    assertEquals(harness.problems, [
      "m/b.yaml:1:1: Service default/web: is not used: m/a.yaml:1 has it too, and comes first by name",
    ]);
    files.remove("m/a.yaml");
    await pass(started, 50);
    await pass(started, 300);
    assertEquals(harness.informers.take(), ["~Service default/web"]);
    assertEquals(harness.informers.clusterIp("web"), "10.0.0.2");
    assertEquals(harness.problems, []);
    files.write("m/a.yaml", WEB_1);
    await pass(started, 50);
    assertEquals(harness.informers.clusterIp("web"), "10.0.0.1");
  });
});

Deno.test("run() uses the first of two objects of one name in a file", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${WEB_2}` }, ({ harness }) => {
    assertEquals(harness.informers.clusterIp("web"), "10.0.0.1");
    assertEquals(harness.problems, [
      "m/a.yaml:9:1: Service default/web: stands in this file for the second time; the one of line 1 is used",
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
    await pass(started, 50);
    assertEquals(harness.informers.take(), []);
    assertEquals(harness.source.status().map(({ path, objects }) => [path, objects]), [
      ["m/a.yaml", 1],
      ["m/b.yaml", 1],
    ]);
  });
});

Deno.test("run() believes that a file is gone or empty only after a moment", async () => {
  await withManifests({ "m/a.yaml": WEB_1, "m/b.yaml": DB }, async (started) => {
    const { files, harness } = started;
    harness.informers.take();
    files.remove("m/a.yaml");
    files.write("m/b.yaml", " \n");
    await pass(started, 250);
    assertEquals(harness.informers.take(), []);
    files.write("m/a.yaml", WEB_2);
    files.write("m/b.yaml", DB);
    await pass(started, 1000);
    assertEquals(harness.informers.take(), ["~Service default/web"]);
    files.remove("m/a.yaml");
    files.write("m/b.yaml", "");
    await pass(started, 50);
    await pass(started, 300);
    assertEquals(harness.informers.take(), ["-Service default/web", "-Service default/db"]);
    assertEquals(harness.source.status().map(({ path, objects }) => [path, objects]), [
      ["m/b.yaml", 0],
    ]);
  });
});

Deno.test("run() finds by looking what no watch told of", async () => {
  await withManifests({ "m/a.yaml": WEB_1 }, async (started) => {
    const { files, harness } = started;
    files.tellsWatches = false;
    files.write("m/a.yaml", WEB_2);
    await pass(started, 9_000);
    assertEquals(harness.informers.clusterIp("web"), "10.0.0.1");
    await pass(started, 1_000);
    assertEquals(harness.informers.clusterIp("web"), "10.0.0.2");
    assertEquals(files.reads.get("m/a.yaml"), 2);
  });
});

Deno.test("run() looks more often at a folder that cannot be watched, and says so once", async () => {
  const clock = new FakeClock();
  const files = new FakeManifestFiles("m");
  files.refusesWatches = true;
  await using harness = new ManifestHarness(clock, files, "m");
  await until(clock, () => harness.informers.services.synced);
  files.write("m/a.yaml", WEB_1);
  await pass({ clock, files, harness }, 2_000);
  assertEquals(harness.informers.take(), ["+Service default/web"]);
  await pass({ clock, files, harness }, 20_000);
  const warnings = harness.logger.lines.filter(({ message }) => message.includes("watch folder"));
  assertEquals(warnings.length, 1);
  files.refusesWatches = false;
  await pass({ clock, files, harness }, 2_000);
  assertEquals(files.watched, ["m"]);
});

Deno.test("run() watches a folder anew that was deleted and made again", async () => {
  await withManifests({ "m/a.yaml": WEB_1 }, async (started) => {
    const { files, harness } = started;
    files.removeFolder("m");
    files.addFolder("m");
    files.write("m/a.yaml", WEB_2);
    await pass(started, 50);
    assertEquals(harness.informers.clusterIp("web"), "10.0.0.2");
    files.write("m/a.yaml", WEB_1);
    await pass(started, 50);
    assertEquals(harness.informers.clusterIp("web"), "10.0.0.1");
  });
});

Deno.test("run() keeps what it knows of files and folders that it may not read", async () => {
  await withManifests({ "m/a.yaml": WEB_1 }, async (started) => {
    const { files, harness } = started;
    harness.informers.take();
    files.forbidden.add("m");
    await pass(started, 30_000);
    assertEquals(harness.informers.take(), []);
    assertEquals(harness.problems.length, 1);
    files.forbidden.clear();
    files.forbidden.add("m/a.yaml");
    await pass(started, 30_000);
    assertEquals(harness.informers.take(), []);
    assertEquals(harness.problems, [
      "m/a.yaml:1:1: Cannot read manifest: no permission for m/a.yaml",
    ]);
    const said = harness.logger.lines.filter(({ level }) => level === "error");
    assertEquals(said.length, 1);
    files.forbidden.clear();
    await pass(started, 10_000);
    assertEquals(harness.problems, []);
    assertEquals(harness.source.status()[0]!.stale, false);
  });
});

Deno.test("run() reads only what changed, and leaves what editors leave behind alone", async () => {
  await withManifests({ "m/a.yaml": WEB_1, "m/b.yaml": DB }, async (started) => {
    const { files } = started;
    for (const name of [".a.yaml.swp", "a.yaml~", "4913", "#a.yaml#", ".#a.yaml", "a.yaml.new"]) {
      files.write(`m/${name}`, "spec: ]");
    }
    files.touch("m/b.yaml");
    await pass(started, 50);
    assertEquals([...files.reads], [["m/a.yaml", 1], ["m/b.yaml", 2]]);
  });
});

Deno.test("run() sees what the selectors of the API would let through", async () => {
  const labelled = (name: string, label: string) =>
    serviceYaml(name, "10.0.0.5").replace("metadata:", `metadata:\n  labels: {${label}: x}`);
  const slice = (name: string, label: string) =>
    "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n" +
    `  name: ${name}\n  labels: {kubernetes.io/service-name: web, ${label}: ""}\n`;
  const node = (name: string) => `apiVersion: v1\nkind: Node\nmetadata: {name: ${name}}\n`;
  const text = [
    WEB_1,
    labelled("foreign", "service.kubernetes.io/service-proxy-name"),
    serviceYaml("headless", "None"),
    slice("web-1", "a"),
    slice("web-2", "service.kubernetes.io/headless"),
    node("node-a"),
    node("node-b"),
  ].join("---\n");
  await withManifests({ "m/a.yaml": text }, async (started) => {
    const { files, harness } = started;
    assertEquals(harness.informers.take(), [
      "+Service default/web",
      "+EndpointSlice default/web-1",
      "+Node node-a",
    ]);
    files.write("m/a.yaml", labelled("web", "service.kubernetes.io/service-proxy-name"));
    await pass(started, 50);
    assertEquals(harness.informers.take(), [
      "-Service default/web",
      "-EndpointSlice default/web-1",
      "-Node node-a",
    ]);
  });
});

Deno.test("run() counts other kinds in one verbose line for each file", async () => {
  const other = "apiVersion: apps/v1\nkind: Deployment\n";
  await withManifests({ "m/a.yaml": `${other}---\n${other}---\n${WEB_1}` }, ({ harness }) => {
    const lines = harness.logger.lines.filter(({ level }) => level === "verbose");
    assertEquals(lines.map(({ fields }) => fields), [
      { file: "m/a.yaml", kinds: "Deployment x2" },
    ]);
    return Promise.resolve();
  });
});

Deno.test("run() writes at most twenty lines about problems, status() shows more", async () => {
  const bad = Array.from({ length: 150 }, (_, index) => serviceYaml(`web-${index}`, "x"));
  await withManifests({ "m/a.yaml": bad.join("---\n") }, ({ harness }) => {
    const errors = harness.logger.lines.filter(({ level }) => level === "error");
    assertEquals(errors.length, 20);
    const rest = harness.logger.lines.find(({ message }) => message.includes("more problems"));
    assertEquals(rest?.fields, { problems: 130 });
    const [status] = harness.source.status();
    assertEquals([status!.problems.length, status!.problemsNotShown], [100, 50]);
    return Promise.resolve();
  });
});
