/**
 * `deno test … tests/load_tests.ts -- PATH…` runs the given test files, and those in the given folders,
 * in one worker. `deno test PATH…` starts a worker for each file, and each loads the modules again,
 * which takes longer than most tests.
 *
 * @module
 */

const ROOT = new URL("../", import.meta.url);

if (Deno.args.length === 0) throw new TypeError("Cannot run tests: expected '-- PATH…'");
for (const path of Deno.args) {
  const files = path.endsWith(".ts") ? [path] : testFilesIn(path);
  if (files.length === 0) throw new RangeError(`Cannot run the tests in '${path}': there are none`);
  for (const file of files) await load(file);
}

/**
 * A file that cannot be loaded is a failing test; the tests of the other files run nevertheless.
 */
async function load(file: string): Promise<void> {
  try {
    await import(new URL(file, ROOT).href);
  } catch (error) {
    Deno.test(`${file} can be loaded`, () => Promise.reject(error));
  }
}

/** The test files in a folder and in the folders below it, sorted. */
function testFilesIn(folder: string): string[] {
  const entries = [...Deno.readDirSync(new URL(`${folder}/`, ROOT))];
  return entries.sort((a, b) => a.name < b.name ? -1 : 1).flatMap(({ name, isDirectory }) => {
    if (isDirectory) return testFilesIn(`${folder}/${name}`);
    return name.endsWith("_test.ts") ? [`${folder}/${name}`] : [];
  });
}
