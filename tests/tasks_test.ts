/** Every test file belongs to a task of deno.json: a file that no task runs proves nothing. */
import { assert, assertEquals } from "@std/assert";
import configuration from "../deno.json" with { type: "json" };

const ROOT = new URL("../", import.meta.url);

/** The files, folders and patterns that the tasks `test:…` name. */
function testPaths(tasks: Readonly<Record<string, unknown>>): readonly string[] {
  const commands = Object.entries(tasks).filter(([name]) => name.startsWith("test:"))
    .map(([, task]) => JSON.stringify(task).replace(/^.*"command":"|"}?$/g, ""));
  return commands.flatMap((command) => command.split(" "))
    .filter((word) => /^(lib|backends|deploy|tests)\b/.test(word))
    // The program that runs the tests of its folder in a guest.
    .map((word) => word.replace(/^tests\/uml\/run\.ts$/, "tests/uml"));
}

function runs(path: string, file: string): boolean {
  const isInFolder = file.startsWith(`${path}/`);
  return isInFolder ||
    new RegExp(`^${path.replaceAll(".", "\\.").replace("*", "[^/]*")}$`).test(file);
}

/** The files that no task runs. */
function missedBy(paths: readonly string[], files: readonly string[]): readonly string[] {
  return files.filter((file) => !paths.some((path) => runs(path, file)));
}

async function* testFilesBelow(folder: string): AsyncGenerator<string> {
  for await (const { name, isDirectory } of Deno.readDir(new URL(folder, ROOT))) {
    if (isDirectory && !/^\.|^(dist|node_modules)$/.test(name)) {
      yield* testFilesBelow(`${folder}${name}/`);
    } else if (name.endsWith("_test.ts")) yield `${folder}${name}`;
  }
}

Deno.test("a task of deno.json runs every test file", async () => {
  const files = await Array.fromAsync(testFilesBelow(""));
  assert(files.includes("tests/tasks_test.ts") && files.length > 100, `${files.length} files`);
  assertEquals(missedBy(testPaths(configuration.tasks), files), []);
});

Deno.test("a test file in a folder that no task names is found", () => {
  const paths = ["lib/net", "tests/*_test.ts"];
  const files = [
    "lib/net/a_test.ts",
    "lib/network/a_test.ts",
    "tests/a_test.ts",
    "tests/b/a_test.ts",
  ];
  assertEquals(missedBy(paths, files), ["lib/network/a_test.ts", "tests/b/a_test.ts"]);
});
