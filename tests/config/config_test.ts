/**
 * Configuration files that must be accepted or refused. To add a case, add a file. Comments at its
 * beginning say what is expected:
 *
 * - in `valid`, `#= field: value` is what a field comes to, in JSON, and `#! text` is a warning; there
 *   must be no others;
 * - in `invalid`, each line is a part of one problem, in their order; there must be no others.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { CONFIGURATION_FIELDS, type FieldTree } from "../../lib/config/configuration.ts";
import { ConfigurationError } from "../../lib/config/configuration_error.ts";
import { loadConfiguration, type LoadedConfiguration } from "../../lib/config/load.ts";
import { fieldOf, warningTexts } from "./expectations.ts";

const FOLDER = new URL(".", import.meta.url).pathname;

function load(path: string): Promise<LoadedConfiguration> {
  return loadConfiguration(
    { readTextFile: (file) => Deno.readTextFile(file), uid: 0, env: () => undefined },
    { flags: { config: path } },
  );
}

interface Expectations {
  readonly fields: ReadonlyMap<string, unknown>;
  readonly warnings: readonly string[];
}

function expectationsOf(text: string): Expectations {
  const fields = new Map<string, unknown>();
  for (const [, field, value] of text.matchAll(/^#= ([\w.]+): (.+)$/gm)) {
    fields.set(field!, JSON.parse(value!));
  }
  return { fields, warnings: [...text.matchAll(/^#! (.+)$/gm)].map(([, warning]) => warning!) };
}

const VALID = [...Deno.readDirSync(`${FOLDER}valid`)].map(({ name }) => name);

for (const name of VALID) {
  Deno.test(`loadConfiguration() accepts valid/${name} with the expected values and warnings`, async () => {
    const path = `${FOLDER}valid/${name}`;
    const { fields, warnings } = expectationsOf(await Deno.readTextFile(path));
    const loaded = await load(path);
    for (const [field, value] of fields) assertEquals(fieldOf(loaded.proxy, field), value, field);
    const found = warningTexts(loaded);
    assertEquals(found.length, warnings.length, found.join("\n"));
    warnings.forEach((warning, index) => assertStringIncludes(found[index]!, warning));
  });
}

for (const { name } of Deno.readDirSync(`${FOLDER}invalid`)) {
  Deno.test(`loadConfiguration() refuses invalid/${name} and gives the reason`, async () => {
    const path = `${FOLDER}invalid/${name}`;
    const [head] = /^(# .*\n)*/.exec(await Deno.readTextFile(path))!;
    const expected = head.split("\n").filter((line) => line !== "").map((line) => line.slice(2));
    const { problems } = await assertRejects(() => load(path), ConfigurationError);
    assertEquals(problems.length, expected.length, problems.join("\n"));
    expected.forEach((part, index) => assertStringIncludes(problems[index]!, part));
    for (const problem of problems) assertStringIncludes(problem, path);
  });
}

Deno.test("tests/config/valid has a case for every field", async () => {
  const covered = new Set<string>();
  for (const name of VALID) {
    const { fields } = expectationsOf(await Deno.readTextFile(`${FOLDER}valid/${name}`));
    for (const field of fields.keys()) covered.add(field);
  }
  for (const field of leaves(CONFIGURATION_FIELDS)) {
    assert(/^(apiVersion|kind)$/.test(field) || covered.has(field), `${field} is in no case`);
  }
});

function leaves(tree: FieldTree, parent = ""): readonly string[] {
  return Object.entries(tree).flatMap(([name, below]) =>
    below ? leaves(below, `${parent}${name}.`) : [parent + name]
  );
}
