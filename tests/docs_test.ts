/**
 * Tests that the generated pages of docs/ match their tables. `UPDATE_DOCS=1` writes them.
 *
 * @module
 */
import { assertEquals } from "@std/assert";
import { VERSION } from "../lib/config/version.ts";
import { annotationsPage, flagsPage, metricsPage } from "./support/docs/reference_docs.ts";

const ROOT = new URL("..", import.meta.url).pathname;

for (
  const [path, page] of [
    ["docs/annotations.md", annotationsPage],
    ["docs/flags.md", flagsPage],
    ["docs/metrics.md", metricsPage],
  ] as const
) {
  Deno.test(`${path} agrees with the code`, async () => {
    if (Deno.env.get("UPDATE_DOCS") === "1") await Deno.writeTextFile(ROOT + path, page());
    assertEquals(await Deno.readTextFile(ROOT + path), page(), "see the end of the introduction");
  });
}

Deno.test("deno.json has the version of the program", async () => {
  assertEquals(JSON.parse(await Deno.readTextFile(`${ROOT}deno.json`)).version, VERSION);
});
