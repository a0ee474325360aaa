import { assert, assertEquals, assertThrows } from "@std/assert";
import { ENVIRONMENT, permissionFlags } from "./permissions.ts";

Deno.test("permissionFlags() gives no flag that opens everything", () => {
  for (const flag of permissionFlags()) {
    assert(!/^(-A|--allow-all|--allow-run|--allow-env|--allow-sys|--allow-ffi)$/.test(flag), flag);
  }
});

Deno.test("permissionFlags() never asks and hides the variables that it does not name", () => {
  const flags = permissionFlags();
  assertEquals(flags[0], "--no-prompt");
  assert(flags.includes("--ignore-env"));
});

Deno.test("permissionFlags() lets in the extra programs next to the known ones", () => {
  const run = permissionFlags(["corporate-login"]).find((flag) => flag.startsWith("--allow-run="));
  assert(/=ip,.*,corporate-login$/.test(run ?? ""), run);
});

Deno.test("permissionFlags() refuses an extra program that would be two", () => {
  assertThrows(() => permissionFlags(["a,sh"]), RangeError, "'a,sh'");
});

Deno.test("permissionFlags() has no flag that a shell would split", () => {
  for (const flag of permissionFlags()) assert(/^[\w=,-]+$/.test(flag), flag);
});

Deno.test("ENVIRONMENT names each variable once", () => {
  const names = ENVIRONMENT.map((variable) => variable.name);
  assertEquals(names, [...new Set(names)]);
});
