import { assertEquals, assertRejects } from "@std/assert";
import { watchFolder } from "./folder_watch.ts";

Deno.test("watchFolder() names what changed, until it is closed", async () => {
  const folder = await Deno.makeTempDir();
  try {
    const named = Promise.withResolvers<string | undefined>();
    const watch = await watchFolder(folder, named.resolve);
    await Deno.writeTextFile(`${folder}/a`, "");
    assertEquals(await named.promise, "a");
    assertEquals(watch.isAlive, true);
    await watch.close();
    assertEquals(watch.isAlive, false);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});

Deno.test("watchFolder() refuses a folder that is not there, or open to everybody", async () => {
  const folder = await Deno.makeTempDir();
  try {
    await assertRejects(() => watchFolder(`${folder}/none`, () => {}), Deno.errors.NotFound);
    await Deno.chmod(folder, 0o777);
    await assertRejects(
      () => watchFolder(folder, () => {}),
      Deno.errors.PermissionDenied,
      "a folder of your own",
    );
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
