import { assertEquals } from "@std/assert";
import { vmoduleVerbosity } from "./vmodule.ts";

const ROWS: readonly (readonly [pattern: string, component: string, fits: boolean])[] = [
  ["reflector", "reflector", true],
  ["reflector", "reflector_progress", false],
  ["reflector*", "reflector_progress", true],
  ["*", "anything", true],
  ["*cer", "syncer", true],
  ["s?ncer", "syncer", true],
  ["s?ncer", "sncer", false],
  ["[p-t]yncer", "syncer", true],
  ["[^p-t]yncer", "syncer", false],
  ["[abc]*", "conntrack", true],
  ["s.ncer", "syncer", false],
  ["[", "[", true],
  ["", "syncer", false],
];

Deno.test("vmoduleVerbosity() compares names as a shell does", () => {
  for (const [filePattern, component, fits] of ROWS) {
    const verbosity = vmoduleVerbosity([{ filePattern, verbosity: 4 }], component);
    assertEquals(verbosity, fits ? 4 : 0, `${filePattern} and ${component}`);
  }
});

Deno.test("vmoduleVerbosity() uses the first pattern that matches", () => {
  const entries = [{ filePattern: "sync*", verbosity: 2 }, { filePattern: "*", verbosity: 5 }];
  assertEquals(vmoduleVerbosity(entries, "syncer"), 2);
  assertEquals(vmoduleVerbosity(entries, "reflector"), 5);
  assertEquals(vmoduleVerbosity([], "reflector"), 0);
});
