import { assertEquals, assertRejects } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { CommandError } from "../../../lib/os/command_runner.ts";
import {
  askTool,
  firstLine,
  readProcFile,
  reasonOfExit,
  saysNotPermitted,
  tryTool,
} from "./try_tool.ts";

Deno.test("tryTool() treats every end of a program as an answer", async () => {
  const commands = new FakeCommandRunner().on("nft", { code: 1, stdout: "a", stderr: "b" });
  const run = () => tryTool({ commands }, ["nft", "--version"]);
  assertEquals(await run(), { kind: "ended", code: 1, out: "a", err: "b" });
  const cases = [
    ["not-found", { kind: "missing", reason: "nft is not on the PATH" }],
    ["not-permitted", { kind: "missing", reason: "nft is not on the PATH" }],
    ["timeout", { kind: "stuck", reason: "nft did not answer within 15 s" }],
    ["failed", { kind: "failed", reason: "Cannot run 'nft --version': failed" }],
  ] as const;
  for (const [failure, answer] of cases) {
    commands.failNext(failure);
    assertEquals(await run(), answer);
  }
});

Deno.test("tryTool() throws when the caller gave up", async () => {
  const commands = new FakeCommandRunner().on("nft", {});
  const signal = AbortSignal.abort();
  await assertRejects(() => tryTool({ commands }, ["nft"], { signal }), CommandError, "aborted");
});

Deno.test("firstLine() lets no control character through, and no flood", () => {
  assertEquals(firstLine("\n \x1b[31mred\x07\nmore"), "\ufffd[31mred\ufffd");
  assertEquals(firstLine("x".repeat(500)).length, 161);
  assertEquals(firstLine(""), "");
});

Deno.test("saysNotPermitted() knows the words of each tool", () => {
  const words = [
    "iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)",
    "Fatal: can't open lock file /run/xtables.lock: Permission denied",
    "/dev/stdin:1:1-15: Error: Could not process rule: Operation not permitted",
    "ipset v7.17: Kernel error received: Operation not permitted",
    "conntrack v1.4.7 (conntrack-tools): Operation failed: sorry, you must be root or get CAP_NET_ADMIN",
  ];
  for (const each of words) assertEquals(saysNotPermitted(each), true, each);
  assertEquals(saysNotPermitted("No such file or directory"), false);
});

Deno.test("askTool() tells what was said from a missing tool and from a refusal", async () => {
  const commands = new FakeCommandRunner().on("nft", { stdout: "table ip x\n" });
  const ask = () => askTool(commands, ["nft", "list", "tables"]);
  assertEquals(await ask(), { state: "seen", value: "table ip x\n" });
  commands.failNext("not-found");
  assertEquals((await ask()).state, "absent");
  for (const failure of ["timeout", "failed", { code: 1, stderr: "no" }] as const) {
    commands.failNext(failure);
    assertEquals((await ask()).state, "refused");
  }
  commands.failNext("aborted");
  await assertRejects(ask, CommandError);
});

Deno.test("readProcFile() treats a missing file as a part that is not loaded", async () => {
  const path = "/proc/net/ip_vs";
  const commands = new FakeCommandRunner()
    .on("cat", { code: 1, stderr: `cat: ${path}: No such file or directory` });
  assertEquals((await readProcFile(commands, path)).state, "absent");
  commands.on("cat", { code: 1, stderr: `cat: ${path}: Permission denied` });
  assertEquals((await readProcFile(commands, path)).state, "refused");
});

Deno.test("reasonOfExit() skips the warning that every iptables-nft gives", () => {
  const warning = "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them";
  const exit = (stderr: string) => reasonOfExit("iptables", { code: 4, stdout: "", stderr });
  assertEquals(exit(`${warning}\nline 3 failed\n`), "line 3 failed");
  assertEquals(exit(`${warning}\n`), "iptables ended with 4");
});

Deno.test("reasonOfExit() skips a line that only names the program", () => {
  const stderr = "iptables-restore v1.8.9 (nf_tables): \n" +
    "line 10: CHAIN_DEL failed (Device or resource busy): chain KUBE-HAIRPIN\n";
  assertEquals(
    reasonOfExit("iptables-restore", { code: 4, stdout: "", stderr }),
    "line 10: CHAIN_DEL failed (Device or resource busy): chain KUBE-HAIRPIN",
  );
});
