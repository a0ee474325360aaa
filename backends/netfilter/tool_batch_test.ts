import { assertEquals, assertInstanceOf, assertRejects } from "@std/assert";
import { FakeCommandRunner } from "../../tests/support/fakes/fake_command_runner.ts";
import { BatchRefusal, refusedLine, runBatch } from "./tool_batch.ts";

const BATCH = {
  command: ["ipset", "restore"],
  lines: ["add A 10.0.0.1", "add A nonsense"],
  timeoutMs: 1_000,
} as const;

Deno.test("runBatch() gives the program every line", async () => {
  const commands = new FakeCommandRunner().on("ipset restore", {});
  await runBatch(commands, BATCH);
  assertEquals(commands.calls.map(({ stdin }) => stdin), ["add A 10.0.0.1\nadd A nonsense\n"]);
});

Deno.test("runBatch() names the refused line, and the reason", async () => {
  const stderr = "ipset v7.17: Error in line 2: Syntax error\n";
  const commands = new FakeCommandRunner().on("ipset restore", { code: 1, stderr });
  const error = await assertRejects(() => runBatch(commands, BATCH), BatchRefusal);
  assertEquals([error.line, error.complaints], [2, 1]);
  assertEquals(
    error.message,
    "Cannot run 'ipset restore', line 2 'add A nonsense': " +
      "ipset v7.17: Error in line 2: Syntax error",
  );
});

Deno.test("runBatch() blames no line if the program may not do anything", async () => {
  const stderr = "Kernel error received: Operation not permitted\n";
  const commands = new FakeCommandRunner().on("ipset restore", { code: 1, stderr });
  const error = await runBatch(commands, BATCH).catch((error: unknown) => error);
  assertInstanceOf(error, Error);
  assertEquals(error instanceof BatchRefusal, false);
});

Deno.test("runBatch() treats any message as a refusal whatever the exit code, on request", async () => {
  const commands = new FakeCommandRunner().on("", {
    stderr: "Service not defined\nNo such file\n",
  });
  await runBatch(commands, BATCH);
  const complaining = { ...BATCH, complainsOnly: true };
  const error = await assertRejects(() => runBatch(commands, complaining), BatchRefusal);
  assertEquals([error.line, error.complaints], [undefined, 2]);
});

Deno.test("refusedLine() knows the words of ipset and of ip", () => {
  assertEquals(
    ["Error in line 12: x", "x\nCommand failed -:3\n", "no number"].map(refusedLine),
    [12, 3, undefined],
  );
});
