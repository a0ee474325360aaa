import { assertEquals, assertRejects } from "@std/assert";
import { removeFile, replacePrivateFile } from "./replace_private_file.ts";
import { namesIn, withFolder } from "../../tests/support/with_folder.ts";

Deno.test("replacePrivateFile() replaces a file by one that only its owner may read", () =>
  withFolder(async (folder) => {
    const path = `${folder}/a`;
    await Deno.writeTextFile(path, "x".repeat(1_000), { mode: 0o644 });
    await replacePrivateFile(path, "new ü");
    assertEquals(await Deno.readTextFile(path), "new ü");
    assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
    assertEquals(await namesIn(folder), ["a"]);
  }));

Deno.test("replacePrivateFile() replaces the leftover of a process that was killed before the rename", () =>
  withFolder(async (folder) => {
    const path = `${folder}/a`;
    await Deno.writeTextFile(path, "old");
    await Deno.writeTextFile(`${path}.tmp`, "y".repeat(10_000));
    assertEquals(await Deno.readTextFile(path), "old");
    await replacePrivateFile(path, "new");
    assertEquals(await Deno.readTextFile(path), "new");
    assertEquals(await namesIn(folder), ["a"]);
  }));

Deno.test("replacePrivateFile() follows no symlink, neither by the name nor by the one next to it", () =>
  withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/precious`, "kept");
    for (const name of ["a", "a.tmp"]) await Deno.symlink("precious", `${folder}/${name}`);
    await replacePrivateFile(`${folder}/a`, "new");
    assertEquals(await Deno.readTextFile(`${folder}/precious`), "kept");
    assertEquals((await Deno.lstat(`${folder}/a`)).isFile, true);
  }));

Deno.test("replacePrivateFile() reports the error of the file system", () =>
  withFolder(async (folder) => {
    await assertRejects(() => replacePrivateFile(`${folder}/none/a`, ""), Deno.errors.NotFound);
    await Deno.mkdir(`${folder}/a/b`, { recursive: true });
    await assertRejects(() => replacePrivateFile(`${folder}/a`, ""));
  }));

Deno.test("removeFile() may be called twice", () =>
  withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/a`, "");
    await removeFile(`${folder}/a`);
    await removeFile(`${folder}/a`);
    assertEquals(await namesIn(folder), []);
  }));
