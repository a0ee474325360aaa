/**
 * docs/faults.md names tests that there are.
 *
 * @module
 */
import { assert, assertEquals } from "@std/assert";
import { BACKENDS } from "../backends/mod.ts";

const ROOT = new URL("../", import.meta.url);

/** One fault of the page. */
interface Row {
  readonly fault: string;
  readonly answer: string;
  readonly tests: readonly { readonly path: string; readonly name: string | undefined }[];
}

/** The rows of all tables of a page. */
function parseRows(page: string): readonly Row[] {
  return page.split("\n").filter((line) => /^\| (?!fault |-)/.test(line)).map((line) => {
    const [, fault = "", , answer = "", shown = ""] = line.split("|").map((cell) => cell.trim());
    const tests = [...shown.matchAll(/\]\(\.\.\/([^)]+)\)(?:: “([^”]+)”)?/g)]
      .map(([, path, name]) => ({ path: path!, name }));
    return { fault, answer, tests };
  });
}

/** Whether a text has this name as a whole, in quotes, or as the end of a template. */
function hasName(source: string, name: string): boolean {
  return [`"${name}"`, `\`${name}\``, `\${flag} ${name}\``].some((text) => source.includes(text));
}

async function read(path: string): Promise<string> {
  return await Deno.readTextFile(new URL(path, ROOT));
}

/** Only a mode that does not exist yet may be the reason why no test shows a fault. */
function isToFollow({ answer }: Row): boolean {
  const mode = /^not in this release: mode (\w+) is to follow$/.exec(answer)?.[1];
  return mode !== undefined && !(mode in BACKENDS);
}

const ROWS = parseRows(await read("docs/faults.md"));

Deno.test("docs/faults.md has a test for each fault, or names a mode that is to follow", () => {
  assert(ROWS.length > 40, `only ${ROWS.length} rows were read`);
  const bare = ROWS.filter((row) => row.tests.length === 0 && !isToFollow(row));
  assertEquals(bare.map(({ fault }) => fault), []);
});

for (const { fault, tests } of ROWS) {
  if (tests.length === 0) continue;
  Deno.test(`docs/faults.md: the test of '${fault}' exists`, async () => {
    for (const { path, name } of tests) {
      const source = await read(path);
      // A file of tests/config is a case by itself; all other files contain names.
      if (name === undefined) assert(path.startsWith("tests/config/"), `${path} without a name`);
      else assert(hasName(source, name), `${path} has no test or case "${name}"`);
    }
  });
}

Deno.test("hasName() does not match a part of a name", () => {
  assertEquals(hasName(`Deno.test("a b c", f)`, "a b"), false);
  assertEquals(hasName(`Deno.test("a b", f)`, "a b"), true);
});
