/** A file that is a mount of its own, as a container gets single files of its host. */
import { assertEquals } from "@std/assert";
import { program, ROOT, testNeeding } from "../support/requirement.ts";
import { runTool } from "../support/drivers/run_tool.ts";

const MODULE = new URL("../../lib/os/write_file.ts", import.meta.url);
const PROGRAM = `import { writeFile } from "${MODULE}"; await writeFile("b", "public", "text");`;

const test = testNeeding("writeFile() on a mount", [ROOT, program("unshare"), program("mount")]);
test("writeFile() writes to a file that is a mount of its own", async () => {
  const folder = await Deno.makeTempDir();
  try {
    for (const name of ["a", "b"]) await Deno.writeTextFile(`${folder}/${name}`, "before");
    const mounted = 'cd "$1" && mount --bind a b && exec "$2" eval "$3"';
    const args = [folder, Deno.execPath(), PROGRAM];
    // The mount goes with its namespace.
    await runTool("unshare", ["--mount", "sh", "-c", mounted, "sh", ...args]);
    const texts = ["a", "b"].map((name) => Deno.readTextFile(`${folder}/${name}`));
    assertEquals(await Promise.all(texts), ["text", "before"]);
    const names = (await Array.fromAsync(Deno.readDir(folder))).map(({ name }) => name);
    assertEquals(names.sort(), ["a", "b"]);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
