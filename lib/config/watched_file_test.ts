import { assertEquals, assertNotEquals } from "@std/assert";
import { hostWatchedFiles } from "./watched_file.ts";

Deno.test("hostWatchedFiles.version() differs when a file may be read that could not be", async () => {
  const path = await Deno.makeTempFile();
  try {
    await Deno.chmod(path, 0o200);
    const before = await hostWatchedFiles.version(path);
    assertEquals(await hostWatchedFiles.version(path), before);
    await Deno.chmod(path, 0o644);
    assertNotEquals(await hostWatchedFiles.version(path), before);
  } finally {
    await Deno.remove(path);
  }
});
