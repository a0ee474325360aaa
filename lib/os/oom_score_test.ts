import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { setOomScore } from "./oom_score.ts";

const SCORE = { pid: 42, adjust: -999 };

function choom(found: number): FakeCommandRunner {
  return new FakeCommandRunner()
    .on("choom -p 42", {
      stdout: "pid 42's current OOM score: 666\n" +
        `pid 42's current OOM score adjust value: ${found}\n`,
    });
}

Deno.test("setOomScore() sets nothing that is so already", async () => {
  const commands = choom(-999);
  assertEquals(await setOomScore(commands, SCORE), { state: "kept" });
  assertEquals(commands.calls.length, 1);
});

Deno.test("setOomScore() writes a differing value", async () => {
  const commands = choom(0).on("choom -n -999 -p 42", {});
  assertEquals(await setOomScore(commands, SCORE), { state: "changed" });
});

Deno.test("setOomScore() reports why it was refused", async () => {
  const reason = "choom: failed to set score adjust value: Permission denied";
  const commands = choom(0).on("choom -n", { code: 1, stderr: `${reason}\n` });
  assertEquals(await setOomScore(commands, SCORE), { state: "refused", reason });
});

Deno.test("setOomScore() treats a missing tool as a refusal", async () => {
  const commands = new FakeCommandRunner().failNext("not-found");
  assertEquals((await setOomScore(commands, SCORE)).state, "refused");
});
