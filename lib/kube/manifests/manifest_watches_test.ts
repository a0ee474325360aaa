import { assertEquals } from "@std/assert";
import { FakeManifestFiles } from "../../../tests/support/fake_manifest_files.ts";
import { MemoryLogger } from "../../../tests/support/memory_logger.ts";
import { ManifestWatches } from "./manifest_watches.ts";

function makeWatches(...folders: string[]) {
  const files = new FakeManifestFiles(...folders);
  const logger = new MemoryLogger();
  const heard: string[] = [];
  const watches = new ManifestWatches(
    { fileSystem: files, logger },
    (folder, name) => heard.push(`${folder} ${name}`),
  );
  return { files, logger, heard, watches };
}

Deno.test("follow() watches these folders and no others", async () => {
  const { files, heard, watches } = makeWatches("a", "b");
  assertEquals(await watches.follow(new Map([["a", "1"], ["b", "1"]])), true);
  assertEquals(await watches.follow(new Map([["b", "1"]])), false);
  assertEquals(files.watched, ["b"]);
  files.write("a/x", "");
  files.write("b/y", "");
  assertEquals(heard, ["b y"]);
  await watches.close();
  assertEquals(files.watched, []);
});

Deno.test("follow() watches a folder anew that has another identity", async () => {
  const { files, heard, watches } = makeWatches("a");
  await watches.follow(new Map([["a", "1"]]));
  assertEquals(await watches.follow(new Map([["a", "2"]])), true);
  files.write("a/x", "");
  assertEquals(heard, ["a x"]);
  await watches.close();
});

Deno.test("follow() has gaps while a folder cannot be watched, and says so once", async () => {
  const { files, logger, watches } = makeWatches("a");
  files.refusesWatches = true;
  for (let turn = 0; turn < 3; turn++) {
    assertEquals(await watches.follow(new Map([["a", "1"]])), false);
  }
  assertEquals([watches.hasGaps, logger.lines.length], [true, 1]);
  files.refusesWatches = false;
  assertEquals(await watches.follow(new Map([["a", "1"]])), true);
  assertEquals(watches.hasGaps, false);
  await watches.close();
});
