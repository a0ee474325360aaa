import { assertEquals } from "@std/assert";
import {
  letPass,
  SEEN_MS,
  serviceYaml,
  withManifests,
} from "../../../tests/support/stages/manifest_harness.ts";

const WEB_1 = serviceYaml("web", "10.0.0.1");
const WEB_2 = serviceYaml("web", "10.0.0.2");
const DB = serviceYaml("db", "10.0.0.9");

Deno.test("run() keeps the last good content of a file with a syntax error, and says where it is", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${DB}` }, async (started) => {
    const { files, harness, clock } = started;
    const goodAt = clock.wallNow();
    harness.informers.take();
    files.write("m/a.yaml", `${WEB_2}---\nspec: ]\n`);
    await letPass(started, SEEN_MS);
    assertEquals(harness.informers.take(), []);
    const [status] = harness.source.status();
    assertEquals([status!.objects, status!.stale, status!.lastGoodAtMs], [2, true, goodAt]);
    assertEquals([status!.problems[0]!.line, status!.problems[0]!.column], [10, 7]);
    const line = harness.logger.lines.find(({ level }) => level === "error");
    assertEquals(line?.message, "Cannot use parts of the manifests");
    assertEquals([line?.fields["file"], line?.fields["line"]], ["m/a.yaml", 10]);
    files.write("m/a.yaml", WEB_2);
    await letPass(started, SEEN_MS);
    assertEquals(harness.informers.take(), ["~Service default/web", "-Service default/db"]);
    assertEquals(harness.source.status()[0]!.stale, false);
  });
});

Deno.test("run() uses the readable part of a file that is broken from the start", async () => {
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
    await letPass(started, SEEN_MS);
    assertEquals(harness.informers.take(), ["~Service default/web"]);
    assertEquals(harness.informers.clusterIp("db"), "10.0.0.9");
    assertEquals(harness.problems, [
      "m/a.yaml:17:7: Service default/db: spec.ports[0].port is 0: " +
      "has to be a whole number between 1 and 65535",
    ]);
  });
});

Deno.test("run() keeps missing objects while an object in the file has no name", async () => {
  await withManifests({ "m/a.yaml": `${WEB_1}---\n${DB}` }, async (started) => {
    const { files, harness } = started;
    harness.informers.take();
    files.write("m/a.yaml", `${WEB_1}---\n${DB.replace("  name: db", "  nmae: db")}`);
    await letPass(started, SEEN_MS);
    assertEquals(harness.informers.take(), []);
    files.write("m/a.yaml", WEB_1);
    await letPass(started, SEEN_MS);
    assertEquals(harness.informers.take(), ["-Service default/db"]);
  });
});
