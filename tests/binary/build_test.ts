/** Tests the output of `./compile.sh` in `dist`, and the inputs that it refuses. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { fileURLToPath } from "node:url";
import { permissionFlags } from "../../lib/os/permissions.ts";
import { file, isMissing, testUnless } from "../support/requirement.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const BUILT = `${ROOT}dist/kube-relay`;
const ignore = isMissing("tests/binary/build_test.ts", [file(BUILT, "./compile.sh")]);
const test = testUnless(ignore);

/** Runs a command at the root of the repository. */
async function run(
  program: string,
  args: readonly string[],
  env: Record<string, string> = {},
): Promise<{ code: number; stdout: string; stderr: string }> {
  const command = new Deno.Command(program, { args: [...args], cwd: ROOT, env, stdin: "null" });
  const { code, stdout, stderr } = await command.output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

/** The start of the executable as text: the script, where it is the self-extracting form. */
async function head(): Promise<string> {
  using opened = await Deno.open(BUILT);
  const buffer = new Uint8Array(32_768);
  const count = await opened.read(buffer) ?? 0;
  return new TextDecoder("latin1").decode(buffer.subarray(0, count));
}

test("dist/SHA256SUMS matches the files next to it", async () => {
  const { code, stdout, stderr } = await run("sh", ["-c", "cd dist && sha256sum -c SHA256SUMS"]);
  assertEquals(code, 0, stderr);
  assertMatch(stdout, /^kube-relay: OK$/m);
  assertMatch(stdout, /^THIRD-PARTY-LICENSES: OK$/m);
  assertMatch(stdout, /^kube-relay\.spdx\.json: OK$/m);
  assertMatch(stdout, /^kube-relay\.8: OK$/m);
  for (const shell of ["bash", "zsh", "fish"]) {
    assertMatch(stdout, new RegExp(`^completion/kube-relay\\.${shell}: OK$`, "m"));
  }
});

test("dist/THIRD-PARTY-LICENSES names Deno, V8 and the packages of the bundle", async () => {
  const text = await Deno.readTextFile(`${ROOT}dist/THIRD-PARTY-LICENSES`);
  const named = ["Deno", "V8", "@kubernetes/client-node 2.", "yaml 2.", "prom-client 15."];
  for (const name of named) assert(text.includes(`\n${name}`), `${name} is missing`);
  assert(!text.includes("fast-check"), "a package for tests is in the bundle");
});

test("dist/kube-relay.spdx.json has the packages of THIRD-PARTY-LICENSES, with checksums", async () => {
  const { packages } = JSON.parse(await Deno.readTextFile(`${ROOT}dist/kube-relay.spdx.json`));
  const listed = packages.filter(({ SPDXID }: { SPDXID: string }) => /-npm-/.test(SPDXID));
  const text = await Deno.readTextFile(`${ROOT}dist/THIRD-PARTY-LICENSES`);
  const licensed = [...text.matchAll(/^-{80}\n(.+ \d\S*)\n-{80}$/gm)].map(([, name]) => name);
  assertEquals(
    listed.map((each: Record<string, string>) => `${each.name} ${each.versionInfo}`),
    licensed,
  );
  for (const { name, checksums } of listed) assert(checksums?.length === 1, `${name} has none`);
});

test("the self-extracting form has just the permissions of lib/os/permissions.ts", async () => {
  const script = await head();
  if (!script.startsWith("#!/bin/sh")) return; // `deno compile` keeps them in its own format.
  const [, flags = ""] =
    /^\s*exec "\$place\/kube-relay" run (.*) "\$place\/\$script"/m.exec(script) ??
      [];
  const permissions = flags.split(" ").filter((flag) =>
    /^--(allow|deny|ignore|no-prompt)/.test(flag)
  );
  assertEquals(permissions, permissionFlags());
});

test("compile.sh refuses a base that makes another program, and leaves dist alone", async () => {
  const before = await Deno.readTextFile(`${ROOT}dist/SHA256SUMS`);
  // With the whole of Deno as its base, `deno compile` succeeds and makes a Deno.
  const { code, stderr } = await run("./compile.sh", [], { DENORT_BIN: Deno.execPath() });
  assertEquals(code, 1);
  assertMatch(stderr, /the result is not kube-relay: --version printed 'deno 2\./);
  assertEquals(await Deno.readTextFile(`${ROOT}dist/SHA256SUMS`), before);
});

const WRONG_ARGUMENTS: readonly (readonly [args: string[], says: RegExp])[] = [
  [["--target=riscv64-unknown-linux-gnu"], /unknown target 'riscv64-unknown-linux-gnu'/],
  [["--target"], /--target needs a value/],
  [["--tarket=x"], /unknown argument '--tarket=x'/],
];

for (const [args, says] of WRONG_ARGUMENTS) {
  Deno.test(`compile.sh ${args.join(" ")} is refused`, async () => {
    const { code, stderr } = await run("./compile.sh", args);
    assertEquals(code, 2);
    assertMatch(stderr, says);
  });
}

Deno.test("compile.sh refuses a name of a program that would be more than a name", async () => {
  const { code, stderr } = await run("./compile.sh", [], { ALLOW_RUN_EXTRA: "login;reboot" });
  assertEquals(code, 2);
  assertMatch(stderr, /ALLOW_RUN_EXTRA is 'login;reboot': expected names of programs/);
});

Deno.test("pack.sh refuses flags that the shell would interpret", async () => {
  const args = ["1.0.0", "x86_64", "/bin/true", "/nowhere", "--flag=$(reboot)"];
  const { code, stdout, stderr } = await run("deploy/pack.sh", args);
  assertEquals({ code, stdout }, { code: 1, stdout: "" });
  assertMatch(stderr, /Cannot pack kube-relay with flag text '\$'/);
});
