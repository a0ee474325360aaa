/**
 * Each fault of docs/faults.md is shown by a test that exists: `support/docs/fault_tests.txt` has the text
 * of the fault, and below it a file and the name of a test or case in each line. A file of tests/config is a
 * case by itself. A name may be a template of several tests.
 */
import { assert, assertEquals } from "@std/assert";

const ROOT = new URL("../", import.meta.url);

type NamedTest = readonly [path: string, name?: string];

function readFaultTests(text: string): ReadonlyMap<string, readonly NamedTest[]> {
  const blocks = text.trimEnd().split(/\n(?! )/).map((block) => block.split("\n  "));
  return new Map(blocks.map(([fault = "", ...tests]) => [
    fault,
    tests.map((test): NamedTest => /^([^:]+): (.*)$/.exec(test)?.slice(1) as never ?? [test]),
  ]));
}

const FAULT_TESTS = readFaultTests(await read("tests/support/docs/fault_tests.txt"));

/** The faults of all tables of a page. */
function faultsOf(page: string): readonly string[] {
  return page.split("\n").filter((line) => /^\| (?!fault |-)/.test(line))
    .map((line) => line.split("|")[1]!.trim());
}

/** Whether a text has this name as a whole, in quotes, as a line of a table, or as the end of a template. */
function hasName(source: string, name: string): boolean {
  const texts = [`"${name}"`, `\`${name}\``, `\n${name}\n`, `\n${name} | `, `\${flag} ${name}\``];
  return texts.some((text) => source.includes(text));
}

async function read(path: string): Promise<string> {
  return await Deno.readTextFile(new URL(path, ROOT));
}

Deno.test("docs/faults.md and the table of tests have the same faults", async () => {
  const faults = faultsOf(await read("docs/faults.md"));
  assert(faults.length > 40, `only ${faults.length} rows were read`);
  assertEquals(faults.toSorted(), [...FAULT_TESTS.keys()].toSorted());
});

for (const [fault, tests] of FAULT_TESTS) {
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
