/**
 * One version of Deno, wherever it is named: another one may bundle, check or forward differently.
 */
import { assert, assertEquals } from "@std/assert";

const ROOT = new URL("../", import.meta.url);

/** Files that name it, and how. */
const PINS: readonly (readonly [path: string, pattern: RegExp])[] = [
  ["compile.sh", /^readonly deno_version=(\S+)$/gm],
  [".ci/run", /^export deno_version=(\S+)$/gm],
  ["README.md", /deno@(\d[\w.]*)/g],
  ["CONTRIBUTING.md", /deno@(\d[\w.]*)/g],
];

Deno.test("every file names the same version of Deno", async () => {
  const versions = new Set<string>();
  for (const [path, pattern] of PINS) {
    const text = await Deno.readTextFile(new URL(path, ROOT));
    const named = [...text.matchAll(pattern)].map((match) => match[1]!);
    assert(named.length > 0, `${path} names no version of Deno: expected ${pattern.source}`);
    for (const version of named) versions.add(version);
  }
  assertEquals(versions.size, 1, `found ${[...versions].join(", ")}`);
});
