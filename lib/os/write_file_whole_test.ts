import { assertEquals, assertRejects } from "@std/assert";
import { writeFileWhole } from "./write_file_whole.ts";
import { withFolder } from "../../tests/support/with_folder.ts";

Deno.test("writeFileWhole() replaces a file by another one with its mode", () =>
  withFolder(async (folder) => {
    const path = `${folder}/a`;
    await writeFileWhole(path, "first");
    const before = await Deno.stat(path);
    assertEquals(before.mode! & 0o777, 0o644);
    await Deno.chmod(path, 0o600);
    await writeFileWhole(path, "second");
    assertEquals(await Deno.readTextFile(path), "second");
    assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
    assertEquals((await Deno.stat(path)).ino === before.ino, false);
  }));

Deno.test("writeFileWhole() leaves nothing behind when it fails", () =>
  withFolder(async (folder) => {
    await Deno.mkdir(`${folder}/a`);
    await assertRejects(() => writeFileWhole(`${folder}/a`, "text"));
    await assertRejects(() => writeFileWhole(`${folder}/none/a`, "text"));
    const names = (await Array.fromAsync(Deno.readDir(folder))).map(({ name }) => name);
    assertEquals(names, ["a"]);
  }));

Deno.test("writeFileWhole() keeps a symlink, and replaces its target", () =>
  withFolder(async (folder) => {
    await Deno.mkdir(`${folder}/other`);
    await Deno.writeTextFile(`${folder}/other/file`, "first", { mode: 0o600 });
    await Deno.symlink("other/file", `${folder}/link`);
    await writeFileWhole(`${folder}/link`, "second");
    assertEquals(await Deno.readLink(`${folder}/link`), "other/file");
    assertEquals(await Deno.readTextFile(`${folder}/other/file`), "second");
    assertEquals((await Deno.stat(`${folder}/other/file`)).mode! & 0o777, 0o600);
  }));

Deno.test("writeFileWhole() writes to a device, and leaves it one", () =>
  withFolder(async (folder) => {
    await Deno.symlink("/dev/null", `${folder}/link`);
    for (const path of ["/dev/null", `${folder}/link`]) await writeFileWhole(path, "text");
    assertEquals((await Deno.stat("/dev/null")).isCharDevice, true);
  }));
