import { assertEquals, assertNotEquals } from "@std/assert";
import { withFolder } from "../../tests/support/with_folder.ts";
import { fileState } from "./file_state.ts";

Deno.test("fileState() reports a missing file, also behind another file", () =>
  withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/a`, "");
    assertEquals(await fileState(`${folder}/none`), undefined);
    assertEquals(await fileState(`${folder}/a/none`), undefined);
  }));

Deno.test("fileState() reports another file of the same name by its version", () =>
  withFolder(async (folder) => {
    const path = `${folder}/a`;
    await Deno.writeTextFile(path, "a");
    const first = await fileState(path);
    await Deno.writeTextFile(`${folder}/new`, "a");
    await Deno.rename(`${folder}/new`, path);
    const second = await fileState(path);
    assertEquals([first?.kind, first?.size], ["file", 1]);
    assertNotEquals(first?.identity, second?.identity);
    assertNotEquals(first?.version, second?.version);
  }));

Deno.test("fileState() differs when a file may be read that could not be", () =>
  withFolder(async (folder) => {
    const path = `${folder}/a`;
    await Deno.writeTextFile(path, "");
    await Deno.chmod(path, 0o200);
    const before = await fileState(path);
    assertEquals(await fileState(path), before);
    await Deno.chmod(path, 0o644);
    assertNotEquals((await fileState(path))?.version, before?.version);
  }));

Deno.test("fileState() reports a new name in a folder by the folder's version", () =>
  withFolder(async (folder) => {
    const before = await fileState(folder);
    await new Promise((resolve) => setTimeout(resolve, 20));
    await Deno.writeTextFile(`${folder}/a`, "");
    const after = await fileState(folder);
    assertEquals([before?.kind, after?.identity], ["folder", before?.identity]);
    assertNotEquals(after?.version, before?.version);
  }));
