import { assertEquals, assertRejects } from "@std/assert";
import { CommandError } from "../../../lib/os/command_runner.ts";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import { askTool, readProcFile, reasonOfExit } from "./tool_output.ts";

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

Deno.test("readProcFile() takes a file that is not there for a part that is not loaded", async () => {
  const path = "/proc/net/ip_vs";
  const commands = new FakeCommandRunner()
    .on("cat", { code: 1, stderr: `cat: ${path}: No such file or directory` });
  assertEquals((await readProcFile(commands, path)).state, "absent");
  commands.on("cat", { code: 1, stderr: `cat: ${path}: Permission denied` });
  assertEquals((await readProcFile(commands, path)).state, "refused");
});

Deno.test("reasonOfExit() passes over the warning that every iptables-nft gives", () => {
  const warning = "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them";
  const exit = (stderr: string) => reasonOfExit("iptables", { code: 4, stdout: "", stderr });
  assertEquals(exit(`${warning}\nline 3 failed\n`), "line 3 failed");
  assertEquals(exit(`${warning}\n`), "iptables ended with 4");
});

Deno.test("reasonOfExit() passes over a line that only names the program", () => {
  const stderr = "iptables-restore v1.8.9 (nf_tables): \n" +
    "line 10: CHAIN_DEL failed (Device or resource busy): chain KUBE-HAIRPIN\n";
  assertEquals(
    reasonOfExit("iptables-restore", { code: 4, stdout: "", stderr }),
    "line 10: CHAIN_DEL failed (Device or resource busy): chain KUBE-HAIRPIN",
  );
});
