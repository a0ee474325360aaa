/** Each fault of docs/faults.md is shown by a test that exists. */
import { assert, assertEquals } from "@std/assert";
import { FAULT_TESTS } from "./support/docs/fault_tests.ts";

const ROOT = new URL("../", import.meta.url);

/** The faults of all tables of a page. */
function faultsOf(page: string): readonly string[] {
  return page.split("\n").filter((line) => /^\| (?!fault |-)/.test(line))
    .map((line) => line.split("|")[1]!.trim());
}

/** Whether a text has this name as a whole, in quotes, or as the end of a template. */
function hasName(source: string, name: string): boolean {
  return [`"${name}"`, `\`${name}\``, `\${flag} ${name}\``].some((text) => source.includes(text));
}

async function read(path: string): Promise<string> {
  return await Deno.readTextFile(new URL(path, ROOT));
}

Deno.test("docs/faults.md and the table of tests have the same faults", async () => {
  const faults = faultsOf(await read("docs/faults.md"));
  assert(faults.length > 40, `only ${faults.length} rows were read`);
  assertEquals(faults.toSorted(), Object.keys(FAULT_TESTS).toSorted());
});

for (const [fault, tests] of Object.entries(FAULT_TESTS)) {
  Deno.test(`docs/faults.md: the test of '${fault}' exists`, async () => {
    assert(tests.length > 0, "no test is named");
    for (const [path, name] of tests) {
      const source = await read(path);
      if (name === undefined) assert(path.startsWith("tests/config/"), `${path} without a name`);
      else assert(hasName(source, name), `${path} has no test or case "${name}"`);
    }
  });
}

Deno.test("hasName() does not match a part of a name", () => {
  assertEquals(hasName(`Deno.test("a b c", f)`, "a b"), false);
  assertEquals(hasName(`Deno.test("a b", f)`, "a b"), true);
});
