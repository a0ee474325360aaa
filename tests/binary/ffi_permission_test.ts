/** Only data processes may load libraries: neither the main process nor a verb can. */
import { fileURLToPath } from "node:url";
import { assertEquals } from "@std/assert";
import { testNeeding } from "../support/requirement.ts";
import { BUILT, Executable, EXECUTABLE_REQUIREMENTS } from "./executable.ts";

const MAIN = new URL("../../main.ts", import.meta.url).href;

/** Whether a program has the permission to load libraries left, after it was given it. */
async function keepsPermission(main: string, deno: string, ...args: readonly string[]) {
  const script = await Deno.makeTempFile({ suffix: ".js" });
  await Deno.writeTextFile(
    script,
    `import ${JSON.stringify(main)};
let answer = Deno.permissions.querySync({ name: "ffi" }).state;
try { Deno.dlopen("libc.so.6", {}); answer += ", loaded"; } catch ({ name }) { answer += ", " + name; }
Deno.stdout.writeSync(new TextEncoder().encode(answer));`,
  );
  const flags = ["-q", "--no-prompt", "--no-check", "--allow-ffi", "--allow-read"];
  if (main === MAIN) flags.push(`--config=${fileURLToPath(new URL("deno.json", MAIN))}`);
  const { stdout } = await new Deno.Command(deno, {
    args: ["run", ...flags, "--unstable-net", script, ...args],
    stderr: "inherit",
  }).output();
  await Deno.remove(script);
  return new TextDecoder().decode(stdout);
}

Deno.test("main.ts gives up the permission to load libraries before it does anything", async () => {
  const deno = Deno.execPath();
  for (const args of [[], ["status"], ["--cleanup"]]) {
    assertEquals(await keepsPermission(MAIN, deno, ...args), "prompt, NotCapable");
  }
  assertEquals(await keepsPermission(MAIN, deno, "data-process"), "granted, loaded");
});

const test = testNeeding("tests/binary/ffi_permission_test.ts", EXECUTABLE_REQUIREMENTS);

test("the self-extracting form is not permitted to load libraries, and would give the permission up", async () => {
  const script = new TextDecoder("latin1").decode((await Deno.readFile(BUILT)).subarray(0, 32_768));
  if (!script.startsWith("#!/bin/sh")) return;
  assertEquals(script.includes("--allow-ffi"), false);
  await using executable = await Executable.create("root");
  assertEquals((await executable.run(["--version"])).code, 0);
  const [place] = await Array.fromAsync(Deno.readDir(`${executable.directory}/cache`));
  const folder = `${executable.directory}/cache/${place!.name}`;
  const main = new URL(`file://${folder}/main.js`).href;
  assertEquals(await keepsPermission(main, `${folder}/kube-relay`), "prompt, NotCapable");
});
