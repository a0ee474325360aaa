import { assertEquals, assertRejects } from "@std/assert";
import { FileExistsError, writeNewFile } from "./write_new_file.ts";

/** Runs with its own folder, and returns the content of the folder. */
async function inFolder(run: (folder: string) => Promise<void>): Promise<readonly string[]> {
  const folder = await Deno.makeTempDir();
  try {
    await run(folder);
    return (await Array.fromAsync(Deno.readDir(folder), ({ name }) => name)).sort();
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test("writeNewFile() writes everything for the owner only, and nothing next to it", async () => {
  const names = await inFolder(async (folder) => {
    const large = "é".repeat(100_000);
    await writeNewFile(`${folder}/a`, ["one ", large, " two"]);
    assertEquals(await Deno.readTextFile(`${folder}/a`), `one ${large} two`);
    assertEquals((await Deno.stat(`${folder}/a`)).mode! & 0o777, 0o600);
  });
  assertEquals(names, ["a"]);
});

Deno.test("writeNewFile() never replaces a file, a folder or a symlink that leads nowhere", async () => {
  const names = await inFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/file`, "mine");
    await Deno.mkdir(`${folder}/folder`);
    await Deno.symlink(`${folder}/elsewhere`, `${folder}/link`);
    for (const name of ["file", "folder", "link"]) {
      await assertRejects(() => writeNewFile(`${folder}/${name}`, ["new"]), FileExistsError, name);
    }
    assertEquals(await Deno.readTextFile(`${folder}/file`), "mine");
  });
  assertEquals(names, ["file", "folder", "link"]);
});

Deno.test("writeNewFile() does not replace a file that was created meanwhile", async () => {
  const names = await inFolder(async (folder) => {
    async function* pieces() {
      yield "new";
      await Deno.writeTextFile(`${folder}/a`, "faster");
    }
    await assertRejects(() => writeNewFile(`${folder}/a`, pieces()), FileExistsError);
    assertEquals(await Deno.readTextFile(`${folder}/a`), "faster");
  });
  assertEquals(names, ["a"]);
});

Deno.test("writeNewFile() names the folder that does not exist", async () => {
  await inFolder(async (folder) => {
    const error = await assertRejects(() => writeNewFile(`${folder}/a/b`, ["new"]), Error);
    const reason = "No such file or directory";
    assertEquals(error.message, `cannot create a file in the folder '${folder}/a': ${reason}`);
  });
});

Deno.test("writeNewFile() leaves nothing of a text that broke off", async () => {
  const names = await inFolder(async (folder) => {
    function* pieces() {
      yield "half";
      throw new Error("it broke off");
    }
    await assertRejects(() => writeNewFile(`${folder}/a`, pieces()), Error, "it broke off");
  });
  assertEquals(names, []);
});
