import { assertEquals, assertRejects } from "@std/assert";
import { FileExistsError, removeFile, writeFile } from "./write_file.ts";
import { namesIn, withFolder } from "../../tests/support/with_folder.ts";

Deno.test("writeFile() of a private file replaces a file by one that only its owner may read", () =>
  withFolder(async (folder) => {
    const path = `${folder}/a`;
    await Deno.writeTextFile(path, "x".repeat(1_000), { mode: 0o644 });
    await writeFile(path, "private", "new ü");
    assertEquals(await Deno.readTextFile(path), "new ü");
    assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
    assertEquals(await namesIn(folder), ["a"]);
  }));

Deno.test("writeFile() of a private file replaces the leftover of a process that was killed before the rename", () =>
  withFolder(async (folder) => {
    const path = `${folder}/a`;
    await Deno.writeTextFile(path, "old");
    await Deno.writeTextFile(`${path}.tmp`, "y".repeat(10_000));
    assertEquals(await Deno.readTextFile(path), "old");
    await writeFile(path, "private", "new");
    assertEquals(await Deno.readTextFile(path), "new");
    assertEquals(await namesIn(folder), ["a"]);
  }));

Deno.test("writeFile() of a private file follows no symlink, neither by the name nor by the one next to it", () =>
  withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/precious`, "kept");
    for (const name of ["a", "a.tmp"]) await Deno.symlink("precious", `${folder}/${name}`);
    await writeFile(`${folder}/a`, "private", "new");
    assertEquals(await Deno.readTextFile(`${folder}/precious`), "kept");
    assertEquals((await Deno.lstat(`${folder}/a`)).isFile, true);
  }));

Deno.test("writeFile() of a private file reports the error of the file system", () =>
  withFolder(async (folder) => {
    await assertRejects(() => writeFile(`${folder}/none/a`, "private", ""), Deno.errors.NotFound);
    await Deno.mkdir(`${folder}/a/b`, { recursive: true });
    await assertRejects(() => writeFile(`${folder}/a`, "private", ""));
  }));

Deno.test("removeFile() may be called twice", () =>
  withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/a`, "");
    await removeFile(`${folder}/a`);
    await removeFile(`${folder}/a`);
    assertEquals(await namesIn(folder), []);
  }));

Deno.test("writeFile() of a public file replaces a file by another one with its mode", () =>
  withFolder(async (folder) => {
    const path = `${folder}/a`;
    await writeFile(path, "public", "first");
    const before = await Deno.stat(path);
    assertEquals(before.mode! & 0o777, 0o644);
    await Deno.chmod(path, 0o600);
    await writeFile(path, "public", "second");
    assertEquals(await Deno.readTextFile(path), "second");
    assertEquals((await Deno.stat(path)).mode! & 0o777, 0o600);
    assertEquals((await Deno.stat(path)).ino === before.ino, false);
  }));

Deno.test("writeFile() of a public file leaves nothing behind when it fails", () =>
  withFolder(async (folder) => {
    await Deno.mkdir(`${folder}/a`);
    await assertRejects(() => writeFile(`${folder}/a`, "public", "text"));
    await assertRejects(() => writeFile(`${folder}/none/a`, "public", "text"));
    assertEquals(await namesIn(folder), ["a"]);
  }));

Deno.test("writeFile() of a public file keeps a symlink, and replaces its target", () =>
  withFolder(async (folder) => {
    await Deno.mkdir(`${folder}/other`);
    await Deno.writeTextFile(`${folder}/other/file`, "first", { mode: 0o600 });
    await Deno.symlink("other/file", `${folder}/link`);
    await writeFile(`${folder}/link`, "public", "second");
    assertEquals(await Deno.readLink(`${folder}/link`), "other/file");
    assertEquals(await Deno.readTextFile(`${folder}/other/file`), "second");
    assertEquals((await Deno.stat(`${folder}/other/file`)).mode! & 0o777, 0o600);
  }));

Deno.test("writeFile() of a public file writes to a device, and leaves it one", () =>
  withFolder(async (folder) => {
    await Deno.symlink("/dev/null", `${folder}/link`);
    for (const path of ["/dev/null", `${folder}/link`]) await writeFile(path, "public", "text");
    assertEquals((await Deno.stat("/dev/null")).isCharDevice, true);
  }));

Deno.test("writeFile() of a new file writes everything for the owner only, and nothing next to it", () =>
  withFolder(async (folder) => {
    const large = "é".repeat(100_000);
    await writeFile(`${folder}/a`, "new", ["one ", large, " two"]);
    assertEquals(await Deno.readTextFile(`${folder}/a`), `one ${large} two`);
    assertEquals((await Deno.stat(`${folder}/a`)).mode! & 0o777, 0o600);
    assertEquals(await namesIn(folder), ["a"]);
  }));

Deno.test("writeFile() of a new file never replaces what has its name, now or meanwhile", () =>
  withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/file`, "mine");
    await Deno.mkdir(`${folder}/folder`);
    await Deno.symlink(`${folder}/elsewhere`, `${folder}/link`);
    for (const name of ["file", "folder", "link"]) {
      const write = () => writeFile(`${folder}/${name}`, "new", ["new"]);
      await assertRejects(write, FileExistsError, name);
    }
    async function* pieces() {
      yield "new";
      await Deno.writeTextFile(`${folder}/late`, "faster");
    }
    await assertRejects(() => writeFile(`${folder}/late`, "new", pieces()), FileExistsError);
    assertEquals(await Deno.readTextFile(`${folder}/file`), "mine");
    assertEquals(await Deno.readTextFile(`${folder}/late`), "faster");
    assertEquals(await namesIn(folder), ["file", "folder", "late", "link"]);
  }));

Deno.test("writeFile() of a new file names a missing folder, and leaves nothing of a text that broke off", () =>
  withFolder(async (folder) => {
    const error = await assertRejects(() => writeFile(`${folder}/a/b`, "new", ["new"]), Error);
    const reason = "No such file or directory";
    assertEquals(error.message, `cannot create a file in the folder '${folder}/a': ${reason}`);
    function* pieces() {
      yield "half";
      throw new Error("it broke off");
    }
    await assertRejects(() => writeFile(`${folder}/a`, "new", pieces()), Error, "it broke off");
    assertEquals(await namesIn(folder), []);
  }));
